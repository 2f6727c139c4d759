//! Services: leases that let one process run each of them.

use switchboard_sys::service_lease::{self, LeaseKey, ServiceLease};

use super::Hub;
use crate::error::HubError;

/// Leases services, each of which one process runs.
#[derive(Clone, Copy)]
pub struct Services<'h> {
    pub(super) hub: &'h Hub,
}

impl Services<'_> {
    /// Leases a service exclusively, or fails with its holder.
    pub fn lease(self, name: &str) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.hub.inner.folder, name, None)?)
    }

    /// Leases a service for a session. A lease that was acquired with the same key is taken over, although its
    /// process still exists: it may be stopped.
    pub fn lease_with(self, name: &str, key: &LeaseKey) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.hub.inner.folder, name, Some(key))?)
    }

    /// Acquires a shared lease on a service, which excludes an exclusive one; `None` if another process holds
    /// it exclusively.
    pub fn share(self, name: &str) -> Result<Option<ServiceLease>, HubError> {
        Ok(service_lease::acquire_shared(&self.hub.inner.folder, name)?)
    }

    /// Describes the process that runs a service; `None` if none does.
    pub fn holder(self, name: &str) -> Result<Option<String>, HubError> {
        Ok(service_lease::holder(&self.hub.inner.folder, name)?)
    }
}
