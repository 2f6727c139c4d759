use std::os::unix::fs::symlink;

use super::*;
use crate::test_workspace::write_carelessly;

fn artifacts_at(path: &str) -> Vec<Artifact> {
    vec![Artifact { path: path.to_owned(), description: None }]
}

#[test]
fn artifacts_are_inside_the_workspace_or_missing() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folder, outside) = (folder.path().canonicalize().unwrap(), outside.path().canonicalize().unwrap());
    write_carelessly(&folder.join("plans/a.md"), "x");
    write_carelessly(&outside.join("secret.md"), "x");
    symlink(outside.join("secret.md"), folder.join("link.md")).unwrap();
    symlink(&outside, folder.join("linked")).unwrap();
    symlink(folder.join("plans"), folder.join("inside")).unwrap();
    symlink(folder.join("nowhere"), folder.join("dangling")).unwrap();
    let at = |path: &str| folder.join(path).to_str().unwrap().to_owned();
    for (path, expected) in [
        ("plans/a.md".to_owned(), "plans/a.md"),
        (" ./plans/../plans/a.md ".to_owned(), "plans/a.md"),
        (at("plans/a.md"), "plans/a.md"),
        ("plans".to_owned(), "plans"),
        ("inside/a.md".to_owned(), "plans/a.md"),
    ] {
        assert_eq!(check(&folder, 1, &artifacts_at(&path)), Ok(vec![expected.to_owned()]), "{path}");
    }
    for (path, reason) in [
        ("plans/b.md".to_owned(), "not found"),
        ("dangling".to_owned(), "not found"),
        ("a\0b".to_owned(), "not found"),
        (String::new(), "the path is empty"),
        (".".to_owned(), "the workspace itself is no evidence"),
        ("..".to_owned(), "outside the workspace"),
        ("link.md".to_owned(), "outside the workspace"),
        ("linked/secret.md".to_owned(), "outside the workspace"),
        ("/etc/passwd".to_owned(), "outside the workspace"),
        (outside.join("secret.md").to_str().unwrap().to_owned(), "outside the workspace"),
    ] {
        let missing = vec![MissingArtifact { path: path.clone(), reason }];
        assert_eq!(
            check(&folder, 2, &artifacts_at(&path)),
            Err(WorkflowError::MissingArtifacts { phase: 2, missing })
        );
    }
}

#[test]
fn all_missing_artifacts_are_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    write_carelessly(&folder.join("there.md"), "x");
    let artifacts = [artifacts_at("a.md"), artifacts_at("there.md"), artifacts_at("/etc/hosts")].concat();
    assert_eq!(
        check(&folder, 3, &artifacts).unwrap_err().to_string(),
        "PHASE 3 INCOMPLETE: Missing required artifacts: a.md (not found), /etc/hosts (outside the workspace). \
         Create them inside the workspace, then complete the phase again"
    );
    let many = vec![artifacts_at("there.md"); 101].concat();
    assert_eq!(check(&folder, 1, &many), Err(WorkflowError::TooManyArtifacts { given: 101, limit: 100 }));
}
