//! The author's instances: the two ways to execute.

use std::collections::BTreeMap;
use std::fmt;

use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::owned::{OwnedReply, OwnedRequest};
use crate::reply::Reply;
use crate::request::Request;
use crate::{message, raw, sys};

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

/// The host policy of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPolicy {
    /// Its name, such as `gpu_0` or `cpu`.
    pub name: String,
    /// Its settings, such as `numa-node`. A value that is no string is given as its JSON.
    pub settings: BTreeMap<String, String>,
}

/// A device that an instance may use beside its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecondaryDevice {
    /// Its kind, as the server names it: `KIND_NVDLA`.
    pub kind: String,
    /// Its number.
    pub id: i64,
}

/// What an instance is told when it is made.
pub struct InstanceContext {
    raw: *mut sys::TRITONBACKEND_ModelInstance,
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
                raw: instance,
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

    /// The host policy it runs under, with what `--host-policy` set for it. Its name also chooses buffers:
    /// [`Input::for_host_policy`](crate::Input::for_host_policy).
    pub fn host_policy(&self) -> Result<HostPolicy> {
        // SAFETY: a live instance; the message stays the server's.
        let policy = unsafe { message::read(raw::instance_host_policy(self.raw)?, "host policy") }?;
        let (name, settings) =
            policy.as_object().and_then(|policy| policy.iter().next()).ok_or_else(|| {
                Error::internal(format!("the host policy of '{}' is {policy}, which has no name", self.name))
            })?;
        let settings = settings.as_object().into_iter().flatten();
        let settings = settings.map(|(key, value)| (key.clone(), crate::config::text(value))).collect();
        Ok(HostPolicy { name: name.clone(), settings })
    }

    /// Whether the server never executes it: an instance group with `passive: true`.
    pub fn is_passive(&self) -> Result<bool> {
        // SAFETY: a live instance.
        unsafe { raw::instance_is_passive(self.raw) }
    }

    /// The optimization profiles that its instance group names (`profile`).
    pub fn profiles(&self) -> Result<Vec<String>> {
        // SAFETY: a live instance; the names are copied at once.
        unsafe {
            let count = raw::instance_profile_count(self.raw)?;
            (0..count).map(|index| Ok(raw::text(raw::instance_profile_name(self.raw, index)?))).collect()
        }
    }

    /// The further devices that its instance group names (`secondary_devices`).
    pub fn secondary_devices(&self) -> Result<Vec<SecondaryDevice>> {
        // SAFETY: a live instance; the kinds are copied at once.
        unsafe {
            let count = raw::instance_secondary_device_count(self.raw)?;
            let device = |index| {
                let (kind, id) = raw::instance_secondary_device(self.raw, index)?;
                Ok(SecondaryDevice { kind: raw::text(kind), id })
            };
            (0..count).map(device).collect()
        }
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

    /// Whether it can answer requests, for servers that ask.
    fn ready(&self) -> Result<()> {
        Ok(())
    }

    /// Answers one request, on a thread of this instance's own. Both may also be kept and answered elsewhere
    /// later; until they are dropped the request counts as in flight.
    fn start(&self, model: &Self::Model, request: OwnedRequest, reply: OwnedReply);
}
