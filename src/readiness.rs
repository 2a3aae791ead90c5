//! Whether a request is one of the model's own warm-up.
//!
//! Triton does not mark warm-up requests. It sends them while the model loads, when nobody else's can reach it: so a request
//! that comes before the server first says that the model is ready is a warm-up. (Of a version that is loaded anew while it is
//! being served the server says that it is ready throughout.) A model whose configuration has no `model_warmup` has none.

use std::sync::atomic::{AtomicBool, Ordering};

use triton_backend_api::{ModelContext, Server};

/// Whether this model has been ready yet, or has no warm-up to wait for.
pub struct Readiness {
    server: Server,
    name: String,
    version: i64,
    seen: AtomicBool,
}

impl Readiness {
    /// Of a model that is being loaded.
    pub fn new(cx: &ModelContext) -> Self {
        let (server, name) = (cx.server().clone(), cx.name().to_owned());
        let version = i64::try_from(cx.version()).unwrap_or(-1);
        let warm_ups = cx.config().json()["model_warmup"].as_array().map_or(0, Vec::len);
        Self { server, name, version, seen: AtomicBool::new(warm_ups == 0) }
    }

    /// Whether the request that just came is a warm-up.
    pub fn is_warm_up(&self) -> bool {
        if self.seen.load(Ordering::Relaxed) {
            return false;
        }
        // A server that is starting up itself answers with an error.
        let ready = self.server.model_is_ready(&self.name, self.version).unwrap_or(false);
        self.seen.store(ready, Ordering::Relaxed);
        !ready
    }
}
