//! Queue slots of nodes, reserved for injections that the hub has not delivered yet.

use std::sync::Arc;

use switchboard_core::NodeId;

use crate::job::NodeShared;

/// A slot in a node's queue. Dropping the slot releases its reservation.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    node: Arc<NodeShared>,
    is_reserved: bool,
}

impl QueueSlot {
    /// Reserves a slot if fewer than `most` injections are queued or reserved; otherwise returns their number.
    pub(super) fn reserve(node: &Arc<NodeShared>, most: usize) -> Result<Self, usize> {
        let mut view = node.state.lock();
        let waiting = view.queue.len() + view.reserved;
        if waiting >= most {
            return Err(waiting);
        }
        view.reserved += 1;
        Ok(Self { node: Arc::clone(node), is_reserved: true })
    }

    /// Creates a slot without a reservation, for an injection that was accepted before or is the first of a job.
    pub(super) fn unreserved(node: &Arc<NodeShared>) -> Self {
        Self { node: Arc::clone(node), is_reserved: false }
    }

    pub(crate) fn node(&self) -> &NodeId {
        &self.node.id
    }
}

impl Drop for QueueSlot {
    fn drop(&mut self) {
        if self.is_reserved {
            self.node.state.lock().reserved -= 1;
        }
    }
}
