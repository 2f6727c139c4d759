//! Places in the queues of nodes, kept for injections that are on their way through the hub.

use std::sync::Arc;

use switchboard_core::NodeId;

use crate::job::NodeShared;

/// A place in a node's queue. Given back when the injection is in the queue, or will not come.
#[derive(Debug)]
pub(crate) struct Place {
    node: Arc<NodeShared>,
    is_kept: bool,
}

impl Place {
    /// Keeps a place where fewer than `most` wait or are on their way; otherwise says how many do.
    pub(super) fn keep(node: &Arc<NodeShared>, most: usize) -> Result<Self, usize> {
        let mut view = node.state.lock();
        let waiting = view.queue.len() + view.coming;
        if waiting >= most {
            return Err(waiting);
        }
        view.coming += 1;
        Ok(Self { node: Arc::clone(node), is_kept: true })
    }

    /// For what takes no place: an injection that was accepted before, or the first of a job.
    pub(super) fn none(node: &Arc<NodeShared>) -> Self {
        Self { node: Arc::clone(node), is_kept: false }
    }

    pub(crate) fn node(&self) -> &NodeId {
        &self.node.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_kept {
            self.node.state.lock().coming -= 1;
        }
    }
}
