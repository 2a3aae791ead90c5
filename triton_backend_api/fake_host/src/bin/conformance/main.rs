//! `conformance libtriton_x.so --config config.json`: see `arguments::USAGE`.
//!
//! Every check runs in a process of its own, so that a backend that crashes or hangs in one is still seen in the others.

mod arguments;
mod checks;
mod subject;

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use arguments::{Arguments, USAGE};
use checks::{Check, Report};
use subject::Subject;

/// What a check's process writes before its report, so that what the backend writes is not taken for one.
const MARK: &str = "\u{1e}conformance report ";
/// Beyond the patience that a check has with each execution.
const GRACE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match Arguments::parse(given.iter().cloned()) {
        Ok(arguments) if arguments.help => {
            say(USAGE);
            ExitCode::SUCCESS
        }
        Ok(arguments) => run(&arguments, &given).unwrap_or_else(|e| complain(&e)),
        Err(e) => complain(&format!("{e}\n\n{USAGE}")),
    }
}

fn say(text: &str) {
    // A reader that went away is no reason to panic.
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn complain(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "error: {text}");
    ExitCode::from(2)
}

fn run(arguments: &Arguments, given: &[String]) -> Result<ExitCode, String> {
    let subject = Subject::open(arguments)?;
    if let Some(text) = &arguments.only {
        let check = Check::named(text).ok_or_else(|| format!("no check is called '{text}'; see --list"))?;
        let report = checks::run(&check, &subject, arguments.patience);
        if arguments.for_parent {
            say(&format!("{MARK}{}", report.to_json()));
            return Ok(ExitCode::SUCCESS);
        }
        return Ok(verdict(usize::from(tell(&check, &report)), 1));
    }
    let mut checks = Check::plain(&subject);
    let (mut done, mut broken, mut quiet) = (0, 0, 0);
    if arguments.list && !arguments.faults {
        checks.iter().for_each(|check| say(&check.to_string()));
        return Ok(ExitCode::SUCCESS);
    }
    while done < checks.len() {
        let check = checks[done].clone();
        let report = apart(&check, arguments, given)?;
        if done == 0 && arguments.faults {
            let calls = report.calls.iter();
            checks.extend(
                calls.flat_map(|(symbol, count)| (1..=*count).map(|nth| Check::Fault(symbol.clone(), nth))),
            );
            if arguments.list {
                checks.iter().for_each(|check| say(&check.to_string()));
                return Ok(ExitCode::SUCCESS);
            }
        }
        let is_quiet = matches!(check, Check::Fault(..)) && report.broken.is_empty();
        quiet += usize::from(is_quiet);
        broken += usize::from(if is_quiet { false } else { tell(&check, &report) });
        done += 1;
    }
    if quiet > 0 {
        say(&format!("ok      {quiet} times one call failed, and all was put right"));
    }
    Ok(verdict(broken, done))
}

/// Says what a check found; whether a rule was broken.
fn tell(check: &Check, report: &Report) -> bool {
    let broken = !report.broken.is_empty();
    say(&format!("{}  {check}", if broken { "BROKEN" } else { "ok    " }));
    report.broken.iter().for_each(|rule| say(&format!("          {rule}")));
    report.notes.iter().for_each(|note| say(&format!("    note: {note}")));
    broken
}

fn verdict(broken: usize, done: usize) -> ExitCode {
    say(&format!("{broken} of {done} checks found a rule broken"));
    ExitCode::from(u8::from(broken > 0))
}

/// Runs a check in a process of its own.
fn apart(check: &Check, arguments: &Arguments, given: &[String]) -> Result<Report, String> {
    let itself = std::env::current_exe().map_err(|e| format!("this executable cannot be found: {e}"))?;
    let mut command = Command::new(itself);
    command.args(given).args(["--only", &check.to_string(), "--for-parent"]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("no process for '{check}': {e}"))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = output.map(|mut output| output.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let until = Instant::now() + arguments.patience * 2 + GRACE;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break Some(status);
        }
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let Some(status) = status else { return Ok(broken("the backend hangs".to_owned())) };
    let output = reader.join().unwrap_or_default();
    let report = output.rsplit_once(MARK).and_then(|(_, report)| Report::from_json(report.trim()));
    Ok(match (report, status.signal()) {
        (Some(report), None) if status.success() => report,
        (_, Some(signal)) => broken(format!("the backend ended the process with signal {signal}")),
        (_, None) => broken(format!("the backend ended the process ({status})")),
    })
}

fn broken(what: String) -> Report {
    Report { broken: vec![what], ..Report::default() }
}
