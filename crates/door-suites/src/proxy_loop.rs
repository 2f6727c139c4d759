//! Notices a proxy of itself: a child that is Switchboard again, for a workspace that is on the way already.

use crate::spec::{ChildSpec, Launch};

/// The variable that carries the workspaces on the way, from the outermost inward.
pub const VARIABLE: &str = "SWITCHBOARD_VIA";

/// How many may stand behind one another. Nobody nests more on purpose.
const MAX_CHAIN: usize = 8;

/// The way to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProxyChain {
    /// What children are told.
    chain: String,
    /// Why no child may be started here.
    pub(crate) refusal: Option<String>,
}

impl ProxyChain {
    /// The way to this workspace, known by its mark, given the way that this process was told.
    pub(crate) fn new(told: &str, own: &str) -> Self {
        let passed: Vec<&str> = told.split(',').filter(|hash| !hash.is_empty()).collect();
        let is_loop = passed.contains(&own);
        let refusal = (is_loop || passed.len() >= MAX_CHAIN).then(|| {
            let why = if is_loop { "one of this workspace's children is this workspace again" } else { "too many stand behind one another" };
            format!("No child is started here, because {why}. Remove Switchboard from .switchboard/mcps of the outer one.")
        });
        let chain = passed.iter().copied().chain([own]).collect::<Vec<_>>().join(",");
        Self { chain, refusal }
    }

    /// The child with the way written into its environment.
    pub(crate) fn tell(&self, spec: &ChildSpec) -> ChildSpec {
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
    fn a_workspace_that_is_on_the_way_already_is_refused() {
        let first = ProxyChain::new("", "one");
        let second = ProxyChain::new(&first.chain, "two");
        assert_eq!((&first.refusal, &second.refusal), (&None, &None));
        let third = ProxyChain::new(&second.chain, "one");
        assert!(third.refusal.unwrap().contains("this workspace again"));
        let long = (0..8).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        assert!(ProxyChain::new(&long, "one").refusal.is_some());
    }
}
