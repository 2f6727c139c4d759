//! Places in the queues of nodes, kept for injections that are on their way through the hub.

use std::sync::Arc;

use switchboard_core::NodeId;

use crate::job::NodeShared;

/// A place in a node's queue. Given back when the injection is in the queue, or will not come.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    node: Arc<NodeShared>,
    is_reserved: bool,
}

impl QueueSlot {
    /// Keeps a place where fewer than `most` wait or are on their way; otherwise says how many do.
    pub(super) fn reserve(node: &Arc<NodeShared>, most: usize) -> Result<Self, usize> {
        let mut view = node.state.lock();
        let waiting = view.queue.len() + view.reserved;
        if waiting >= most {
            return Err(waiting);
        }
        view.reserved += 1;
        Ok(Self { node: Arc::clone(node), is_reserved: true })
    }

    /// For what takes no place: an injection that was accepted before, or the first of a job.
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
