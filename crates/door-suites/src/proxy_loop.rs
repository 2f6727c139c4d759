//! Detection of proxy loops.
//!
//! A loop exists if a child is Switchboard again, for a workspace that is already in the chain of proxies.

use crate::spec::{ChildSpec, Launch};

/// Environment variable that contains the chain of workspaces, outermost first.
pub const VARIABLE: &str = "SWITCHBOARD_VIA";

/// Maximum length of a chain of nested proxies. Deeper nesting indicates a mistake.
const MAX_CHAIN: usize = 8;

/// Chain of Switchboard proxies that leads to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyChain {
    /// Value of [`VARIABLE`] for the children of this process.
    chain: String,
    /// Reason why this process must not start children; `None` if it may.
    pub(crate) refusal: Option<String>,
}

impl ProxyChain {
    /// Extends the inherited chain with this workspace's hash. Detects loops and chains that are too long.
    pub(crate) fn new(inherited: &str, own: &str) -> Self {
        let ancestors: Vec<&str> = inherited.split(',').filter(|hash| !hash.is_empty()).collect();
        let is_loop = ancestors.contains(&own);
        let refusal = (is_loop || ancestors.len() >= MAX_CHAIN).then(|| {
            let reason = if is_loop { "a child of this workspace is the same workspace again" } else { "too many Switchboards are nested" };
            format!("No child is started here, because {reason}. Remove Switchboard from .switchboard/mcps of the outer workspace.")
        });
        let chain = ancestors.iter().copied().chain([own]).collect::<Vec<_>>().join(",");
        Self { chain, refusal }
    }

    /// Returns the spec with the chain added to the environment of a local program.
    pub(crate) fn add_to(&self, spec: &ChildSpec) -> ChildSpec {
        let mut spec = spec.clone();
        if let Launch::Stdio { env, .. } = &mut spec.launch {
            env.insert(VARIABLE.to_owned(), self.chain.clone());
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::ProxyChain;

    #[test]
    fn workspace_already_in_chain_is_refused() {
        let first = ProxyChain::new("", "one");
        let second = ProxyChain::new(&first.chain, "two");
        assert_eq!((&first.refusal, &second.refusal), (&None, &None));
        let third = ProxyChain::new(&second.chain, "one");
        assert!(third.refusal.unwrap().contains("the same workspace again"));
        let long = (0..8).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        assert!(ProxyChain::new(&long, "one").refusal.is_some());
    }
}
