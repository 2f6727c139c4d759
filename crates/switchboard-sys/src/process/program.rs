//! Check whether a program can be started, before it is started.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::DEFAULT_PATH;

/// Number of bytes in which the kernel looks for the interpreter line (`#!`).
const FIRST_LINE: u64 = 256;

/// Reason why a program cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The working folder is missing.
    #[error("the folder {} does not exist", .folder.display())]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// No file of that name was found.
    #[error("there is no program '{program}'")]
    Missing {
        /// The program as given.
        program: String,
    },
    /// The path is not a regular file.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file is not executable.
    #[error("{} is not executable", .path.display())]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// The file has no content.
    #[error("{} is empty", .path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The interpreter of a script cannot be started.
    #[error("{} is a script for '{interpreter}', which is not there or not executable", .path.display())]
    NoInterpreter {
        /// The script.
        path: PathBuf,
        /// The interpreter of the script.
        interpreter: String,
    },
}

impl ProgramError {
    /// Returns what the person can do about the error.
    pub fn next_step(&self) -> &'static str {
        match self {
            Self::NoFolder { .. } => "make the folder",
            Self::Missing { .. } => "install it",
            Self::NotAFile { .. } => "name a program",
            Self::NotExecutable { .. } => "make it executable with `chmod +x`",
            Self::Empty { .. } => "install it again",
            Self::NoInterpreter { .. } => "install the interpreter or correct the first line",
        }
    }
}

/// Finds a program that is to start in `folder`, at its path or in `PATH`.
///
/// Fails with the reason why the program cannot be started. The check covers permissions and the interpreter line. Only
/// starting the program shows whether it really runs.
pub fn check_program(program: &OsStr, folder: &Path) -> Result<PathBuf, ProgramError> {
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        return Err(ProgramError::NoFolder { folder: folder.to_owned() });
    }
    let path = locate(program, folder)?;
    let is_empty = path.metadata().is_ok_and(|file| file.len() == 0);
    if is_empty {
        return Err(ProgramError::Empty { path });
    }
    match missing_interpreter(&path, folder) {
        Some(interpreter) => Err(ProgramError::NoInterpreter { path, interpreter }),
        None => Ok(path),
    }
}

fn locate(program: &OsStr, folder: &Path) -> Result<PathBuf, ProgramError> {
    let missing = || ProgramError::Missing { program: program.to_string_lossy().escape_debug().to_string() };
    if program.as_bytes().contains(&b'/') {
        let path = folder.join(program);
        return match path.metadata() {
            Err(_) => Err(missing()),
            Ok(found) if !found.is_file() => Err(ProgramError::NotAFile { path }),
            Ok(found) if !is_executable(&found) => Err(ProgramError::NotExecutable { path }),
            Ok(_) => Ok(path),
        };
    }
    let mut error = missing();
    if program.is_empty() {
        return Err(error);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    for directory in std::env::split_paths(&path) {
        let path = folder.join(directory).join(program);
        match path.metadata() {
            Ok(found) if found.is_file() && is_executable(&found) => return Ok(path),
            Ok(found) if found.is_file() => error = ProgramError::NotExecutable { path },
            Ok(_) | Err(_) => {}
        }
    }
    Err(error)
}

fn is_executable(file: &Metadata) -> bool {
    file.permissions().mode() & 0o111 != 0
}

/// Returns the interpreter of a script if that interpreter is missing.
///
/// The interpreter is the program that the first line names, or the program that `env` runs.
fn missing_interpreter(script: &Path, folder: &Path) -> Option<String> {
    let mut head = Vec::new();
    // A program may be executable but not readable; then its interpreter is not checked.
    File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_ascii_whitespace();
    let interpreter = words.next()?;
    // The interpreter is always a path and is never searched for in PATH.
    let path = folder.join(interpreter);
    if !path.metadata().is_ok_and(|found| found.is_file() && is_executable(&found)) {
        return Some(interpreter.to_owned());
    }
    if path.file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let program = words.find(|word| *word != "-S")?;
    let is_option = program.starts_with('-') || program.contains('=');
    (!is_option && locate(program.as_ref(), folder).is_err()).then(|| program.to_owned())
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
