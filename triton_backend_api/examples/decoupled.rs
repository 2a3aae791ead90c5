//! A stream: COUNT, one INT32, is answered with as many responses, OUT = 0, 1, 2, .. Each comes when it is ready.
//!
//! The configuration says `model_transaction_policy { decoupled: true }`. Parameter `pause_ms`: the time between two of them.

use std::time::Duration;

use triton_backend_api::*;

struct Counter {
    pause: Duration,
}

impl Model for Counter {
    fn load(cx: &ModelContext) -> Result<Self> {
        let parameters = cx.config().parameters();
        let text = parameters.get("pause_ms").map_or("0", String::as_str);
        let wrong =
            |_| Error::invalid_arg(format!("parameter pause_ms is '{text}'; a whole number is accepted"));
        Ok(Self { pause: Duration::from_millis(text.parse().map_err(wrong)?) })
    }
}

struct Streamer;

impl ConcurrentInstance for Streamer {
    type Model = Counter;

    fn create(_: &Counter, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn max_in_flight(&self) -> usize {
        8
    }

    fn start(&self, model: &Counter, request: OwnedRequest, reply: OwnedReply) {
        let count = request.input("COUNT").and_then(|input| match *input.elements::<i32>()? {
            [count] => Ok(count),
            _ => Err(Error::invalid_arg(format!("COUNT is {:?}; one number is accepted", input.shape()))),
        });
        // Where the model is not decoupled this has answered the request with an error.
        let Ok(mut stream) = reply.into_stream() else { return };
        drop(request); // its inputs are not needed any more
        let result = count.and_then(|count| count_up(&mut stream, count, model.pause));
        stream.finish(result);
    }
}

fn count_up(stream: &mut ResponseStream, count: i32, pause: Duration) -> Result<()> {
    for number in 0..count {
        if stream.is_cancelled() {
            return Err(Error::cancelled(format!("the client left after {number} of {count} responses")));
        }
        stream.output("OUT", DataType::Int32, &[1])?.write(&[number])?;
        stream.send()?;
        std::thread::sleep(pause);
    }
    Ok(())
}

export_backend!(Counter, concurrent Streamer);
