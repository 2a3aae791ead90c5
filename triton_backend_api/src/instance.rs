//! The author's instances: the two ways to execute.

use std::fmt;

use crate::batch::Batch;
use crate::error::Result;
use crate::model::Model;
use crate::owned::{OwnedReply, OwnedRequest};
use crate::reply::Reply;
use crate::request::Request;
use crate::{raw, sys};

/// Where an instance runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstanceKind {
    /// On the CPU.
    Cpu,
    /// On a GPU.
    Gpu,
    /// Wherever the model says.
    Model,
    /// A kind this crate does not know, as the server numbers it.
    Unknown(u32),
}

impl InstanceKind {
    pub(crate) fn from_raw(raw: u32) -> Self {
        match raw {
            sys::TRITONSERVER_INSTANCEGROUPKIND_CPU => Self::Cpu,
            sys::TRITONSERVER_INSTANCEGROUPKIND_GPU => Self::Gpu,
            sys::TRITONSERVER_INSTANCEGROUPKIND_MODEL => Self::Model,
            other => Self::Unknown(other),
        }
    }

    pub(crate) fn to_raw(self) -> u32 {
        match self {
            Self::Cpu => sys::TRITONSERVER_INSTANCEGROUPKIND_CPU,
            Self::Gpu => sys::TRITONSERVER_INSTANCEGROUPKIND_GPU,
            Self::Model => sys::TRITONSERVER_INSTANCEGROUPKIND_MODEL,
            Self::Unknown(other) => other,
        }
    }
}

impl fmt::Display for InstanceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("KIND_CPU"),
            Self::Gpu => f.write_str("KIND_GPU"),
            Self::Model => f.write_str("KIND_MODEL"),
            Self::Unknown(other) => write!(f, "instance kind {other}"),
        }
    }
}

/// What an instance is told when it is made.
pub struct InstanceContext {
    name: String,
    kind: InstanceKind,
    device_id: i32,
}

impl InstanceContext {
    /// # Safety
    /// `instance` is an instance that the server is initialising.
    pub(crate) unsafe fn new(instance: *mut sys::TRITONBACKEND_ModelInstance) -> Result<Self> {
        // SAFETY: a live instance; the name is copied at once.
        unsafe {
            Ok(Self {
                name: raw::text(raw::instance_name(instance)?),
                kind: InstanceKind::from_raw(raw::instance_kind(instance)?),
                device_id: raw::instance_device_id(instance)?,
            })
        }
    }

    /// The instance's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it runs.
    pub fn kind(&self) -> InstanceKind {
        self.kind
    }

    /// The number of its GPU, for [`InstanceKind::Gpu`].
    pub fn device_id(&self) -> i32 {
        self.device_id
    }
}

/// An instance that answers while Execute waits.
///
/// The server never calls it twice at a time, so it may change itself. Err(e) is the answer to that one request.
pub trait Instance: Send + Sized + 'static {
    /// The model it belongs to.
    type Model: Model;

    /// Makes an instance; an error refuses the load.
    fn create(model: &Self::Model, cx: &InstanceContext) -> Result<Self>;

    /// Answers one request: fills `reply`, or fails.
    fn infer(&mut self, model: &Self::Model, request: &Request, reply: &mut Reply) -> Result<()>;

    /// Answers all requests of one execution; overriding it gives true batching (see
    /// [`Batch::as_one_execution`]). What it leaves open is answered with what it returns.
    fn execute(&mut self, model: &Self::Model, batch: &mut Batch) -> Result<()> {
        batch.for_each(|request, reply| self.infer(model, request, reply));
        Ok(())
    }
}

/// An instance that takes requests over: Execute returns at once, and several are in flight.
pub trait ConcurrentInstance: Send + Sync + Sized + 'static {
    /// The model it belongs to.
    type Model: Model;

    /// Makes an instance; an error refuses the load.
    fn create(model: &Self::Model, cx: &InstanceContext) -> Result<Self>;

    /// How many requests may be in flight; Execute waits while there are so many.
    fn max_in_flight(&self) -> usize {
        2
    }

    /// Answers one request, on a thread of this instance's own. Both may also be kept and answered elsewhere
    /// later; until they are dropped the request counts as in flight.
    fn start(&self, model: &Self::Model, request: OwnedRequest, reply: OwnedReply);
}
