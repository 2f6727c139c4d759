//! Programs that download a server before they run it, which takes as long as it takes.

use std::path::Path;

/// What runs packages, images and sources that need not be on this machine yet. To end one in the middle of a
/// download would throw that away, and may leave a broken package behind.
const RUNNERS: &[&str] = &[
    "bun", "bunx", "cargo", "deno", "dnx", "docker", "dotnet", "go", "jbang", "nix", "npm", "npx", "pipx",
    "pnpm", "pnpx", "podman", "uv", "uvx", "yarn",
];

/// Whether a program may first have to download what it runs.
pub(super) fn fetches(command: &str) -> bool {
    let program = Path::new(command).file_stem().and_then(|stem| stem.to_str());
    program.is_some_and(|program| RUNNERS.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::fetches;

    #[test]
    fn programs_are_known_by_their_name_wherever_they_are() {
        for command in ["npx", "/usr/local/bin/uvx", "./docker", "npx.cmd"] {
            assert!(fetches(command), "{command}");
        }
        for command in ["node", "python3", "/opt/npx/server", "npx-like", ""] {
            assert!(!fetches(command), "{command}");
        }
    }
}
