//! One request on all cores: ITERATIONS says after how many steps of z = z^2 + c each of POINTS leaves the circle of radius 2.
//!
//! Parameters: `threads` (default: one for each core) and `limit`, the most steps (default 1000).

use rayon::prelude::*;
use triton_backend_api::*;

struct Fractal {
    pool: rayon::ThreadPool,
    limit: i32,
}

impl Model for Fractal {
    fn load(cx: &ModelContext) -> Result<Self> {
        let parameters = cx.config().parameters();
        let number = |key: &str, default: usize| match parameters.get(key) {
            Some(text) => text.parse().map_err(|_| {
                Error::invalid_arg(format!("parameter {key} is '{text}'; a whole number from 0 is accepted"))
            }),
            None => Ok(default),
        };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(number("threads", 0)?).build();
        let pool = pool.map_err(|e| Error::unavailable(format!("no threads: {e}")))?;
        Ok(Self { pool, limit: i32::try_from(number("limit", 1000)?).unwrap_or(i32::MAX) })
    }
}

struct Painter;

impl Instance for Painter {
    type Model = Fractal;

    fn create(_: &Fractal, _: &InstanceContext) -> Result<Self> {
        Ok(Self)
    }

    fn infer(&mut self, model: &Fractal, request: &Request, reply: &mut Reply) -> Result<()> {
        let input = request.input("POINTS")?;
        let points = input.elements::<f32>()?;
        let [shape @ .., 2] = input.shape() else {
            return Err(Error::invalid_arg(format!("POINTS is {:?}; [.., 2] is accepted", input.shape())));
        };
        let mut output = reply.output("ITERATIONS", DataType::Int32, shape)?;
        let places = output.bytes_mut()?.par_chunks_exact_mut(size_of::<i32>()).with_min_len(16);
        model.pool.install(|| {
            places.zip(points.par_chunks_exact(2)).for_each(|(place, point)| {
                place.copy_from_slice(&steps(point[0].into(), point[1].into(), model.limit).to_ne_bytes());
            });
        });
        Ok(())
    }
}

fn steps(re: f64, im: f64, limit: i32) -> i32 {
    let (mut x, mut y) = (0.0, 0.0);
    for step in 0..limit {
        (x, y) = (x * x - y * y + re, 2.0 * x * y + im);
        if x * x + y * y > 4.0 {
            return step;
        }
    }
    limit
}

export_backend!(Fractal, Painter);
