#![expect(clippy::disallowed_methods, reason = "the tests make the files that a repository has")]

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A repository with a folder of files, and a second tree of it, as Git makes them.
struct Repository {
    folder: TempDir,
}

impl Repository {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |path: &str| folder.path().join(path);
        for dir in ["main/.git/worktrees/other", "main/src/deep", "other/src", "plain/src"] {
            fs::create_dir_all(place(dir)).expect("made");
        }
        fs::write(place("main/src/a.rs"), "").expect("written");
        fs::write(place("main/.git/worktrees/other/commondir"), "../..\n").expect("written");
        let git = format!("gitdir: {}\n", place("main/.git/worktrees/other").display());
        fs::write(place("other/.git"), git).expect("written");
        symlink("src", place("main/linked")).expect("linked");
        symlink("src/a.rs", place("main/b.rs")).expect("linked");
        symlink("/", place("main/away")).expect("linked");
        symlink(place("main"), place("way")).expect("linked");
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().expect("there").join(name)
    }

    fn names(&self, folder: &str, path: &str) -> Result<Vec<String>, WorkTreeError> {
        let folder = self.path(folder);
        let patterns = WorkTree::of(&folder)?.patterns(&folder, path)?;
        Ok(patterns.iter().map(ToString::to_string).collect())
    }
}

#[test]
fn work_trees_share_their_repository() {
    let repository = Repository::new();
    let tree = |name: &str| WorkTree::of(&repository.path(name)).expect("a tree");
    let (main, other, plain) = (tree("main/src/deep"), tree("other/src"), tree("plain/src"));
    assert_eq!(main.root, text(&repository.path("main")));
    assert_eq!(other.root, text(&repository.path("other")));
    assert_eq!(main.repository, other.repository);
    assert_eq!((plain.root.clone(), plain.repository), (text(&repository.path("plain/src")), plain.root));
    assert_eq!(WorkTree::of(&repository.folder.path().join("way")).expect("a tree"), tree("main"));
    assert_eq!(other.main_tree(), Some(repository.path("main")));
    assert_eq!(main.main_tree(), None);
}

#[test]
fn location_falls_back_to_workspace() {
    let repository = Repository::new();
    let tree = |name: &str| WorkTree::of(&repository.path(name)).expect("a tree");
    for (folder, workspace, expected, at) in [
        ("main/src", "main", "main", "main/src"),
        ("other/src", "main", "other", "other/src"),
        ("plain/src", "plain", "plain", "plain/src"),
        ("plain/src", "main", "main", "main"),
        ("main/src", "plain", "plain", "plain"),
    ] {
        let place = WorkTree::locate(&repository.path(folder), &repository.path(workspace)).expect("a place");
        assert_eq!(place, (repository.path(at), tree(expected)), "{folder} of {workspace}");
    }
}

#[test]
fn file_has_one_name_through_symbolic_links() {
    let repository = Repository::new();
    let all = repository.path("main/src/a.rs");
    for (folder, path, expected) in [
        ("main", "src/a.rs", vec!["src/a.rs"]),
        ("main", "./src/../src/a.rs", vec!["src/a.rs"]),
        ("main/src", "a.rs", vec!["src/a.rs"]),
        ("main/src", "../src/a.rs", vec!["src/a.rs"]),
        ("main", "linked/a.rs", vec!["src/a.rs"]),
        ("main", "linked/*.rs", vec!["src/*.rs"]),
        ("main", "b.rs", vec!["b.rs", "src/a.rs"]),
        ("main", "src", vec!["src/**"]),
        ("main", "linked", vec!["linked", "src/**"]),
        ("main", "new/", vec!["new/**"]),
        ("main", "new/file.rs", vec!["new/file.rs"]),
        ("main", ".", vec!["**"]),
        ("main", "**/*.rs", vec!["**/*.rs"]),
        ("main/src", "../**", vec!["**"]),
        ("main", all.to_str().expect("text"), vec!["src/a.rs"]),
        ("main", "src/{a,b}.{rs,md}", vec!["src/a.md", "src/a.rs", "src/b.md", "src/b.rs"]),
        ("main", "{a{1,2},b}", vec!["a1", "a2", "b"]),
        ("main", "a{b}c", vec!["a{b}c"]),
        ("other", "src/a.rs", vec!["src/a.rs"]),
    ] {
        assert_eq!(repository.names(folder, path).expect("named"), expected, "{path} in {folder}");
    }
}

#[test]
fn path_outside_tree_is_refused() {
    let repository = Repository::new();
    for path in ["../other/src/a.rs", "/etc/passwd", "away/etc/passwd", "away/**", "../*", "src/../../x"] {
        let refused = repository.names("main", path);
        assert!(matches!(refused, Err(WorkTreeError::Outside { .. })), "{path}: {refused:?}");
    }
    for path in ["src/*/../a", "src/[a", "a\\b*"] {
        assert!(matches!(repository.names("main", path), Err(WorkTreeError::Pattern(_))), "{path}");
    }
    let many = "{a,b}".repeat(7);
    assert!(matches!(repository.names("main", &many), Err(WorkTreeError::TooMany { .. })));
    for path in ["", "  ", "{,src}"] {
        assert!(matches!(repository.names("main", path), Err(WorkTreeError::Nothing)), "{path}");
    }
}
