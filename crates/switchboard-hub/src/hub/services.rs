//! Services: exclusive leases that let only one process run each service.

use switchboard_sys::service_lease::{self, LeaseKey, ServiceLease};

use super::Hub;
use crate::error::HubError;

/// Access to services, each of which only one process runs at a time.
#[derive(Clone, Copy)]
pub struct Services<'h> {
    pub(super) hub: &'h Hub,
}

impl Services<'_> {
    /// Leases a service exclusively; if another process holds the lease, fails with that holder.
    pub fn lease(self, name: &str) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.hub.inner.folder, name, None)?)
    }

    /// Leases a service for a session.
    ///
    /// A lease that was acquired with the same key is taken over, even if its process still exists, because that
    /// process may be suspended.
    pub fn lease_with(self, name: &str, key: &LeaseKey) -> Result<ServiceLease, HubError> {
        Ok(service_lease::acquire(&self.hub.inner.folder, name, Some(key))?)
    }

    /// Acquires a shared lease on a service, which excludes an exclusive lease.
    ///
    /// Returns `None` if another process holds the service exclusively.
    pub fn share(self, name: &str) -> Result<Option<ServiceLease>, HubError> {
        Ok(service_lease::acquire_shared(&self.hub.inner.folder, name)?)
    }

    /// Returns a description of the process that runs a service, or `None` if no process does.
    pub fn holder(self, name: &str) -> Result<Option<String>, HubError> {
        Ok(service_lease::holder(&self.hub.inner.folder, name)?)
    }
}
