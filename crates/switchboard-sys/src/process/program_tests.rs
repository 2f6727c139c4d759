use super::*;
use crate::files::Dir;

#[test]
fn unusable_program_names_its_problem() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path_of = |name: &str| folder.path().join(format!("./{name}"));
    let file = Dir::open_root(folder.path()).expect("opened");
    for (name, content, mode) in [
        ("plain", "#!/bin/sh\necho 42\n", 0o600),
        ("empty", "", 0o700),
        ("python9", "#!/usr/bin/python9 -u\n", 0o700),
        ("env9", "#!/usr/bin/env -S nosuchprogram -x\n", 0o700),
        ("good", "#! /bin/sh -e\necho 42\n", 0o700),
        ("env", "#!/usr/bin/env sh\necho 42\n", 0o700),
        ("bare", "echo 42\n", 0o700),
    ] {
        file.replace(name, content.as_bytes(), mode).expect("written");
    }
    std::fs::create_dir(folder.path().join("folder")).expect("made");
    let check = |program: &str| check_program(program.as_ref(), folder.path());
    let no_interpreter = |name: &str, interpreter: &str| {
        Err(ProgramError::NoInterpreter { path: path_of(name), interpreter: interpreter.to_owned() })
    };
    assert_eq!(check("./plain"), Err(ProgramError::NotExecutable { path: path_of("plain") }));
    assert_eq!(check("./folder"), Err(ProgramError::NotAFile { path: path_of("folder") }));
    assert_eq!(check("./empty"), Err(ProgramError::Empty { path: path_of("empty") }));
    assert_eq!(check("./python9"), no_interpreter("python9", "/usr/bin/python9"));
    assert_eq!(check("./env9"), no_interpreter("env9", "nosuchprogram"));
    for missing in ["nosuchprogram", "./none"] {
        assert_eq!(check(missing), Err(ProgramError::Missing { program: missing.to_owned() }));
    }
    for good in ["good", "env", "bare"] {
        assert_eq!(check(&format!("./{good}")), Ok(path_of(good)));
    }
    let gone = folder.path().join("gone");
    assert_eq!(
        check_program("/bin/sh".as_ref(), &gone),
        Err(ProgramError::NoFolder { folder: gone.clone() })
    );
}
