//! Whether a program can be started, told before it is.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::DEFAULT_PATH;

/// Bytes of a file in which the kernel looks for the interpreter line.
const FIRST_LINE: u64 = 256;

/// Why a program cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramProblem {
    /// The folder to start it in is missing.
    #[error("there is no folder {}", .folder.display())]
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
    /// The path leads to something other than a file.
    #[error("{} is not a file", .path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file may not be executed.
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
        /// Its interpreter.
        interpreter: String,
    },
}

impl ProgramProblem {
    /// Next step for the person.
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

/// Finds the program that is started from `folder`, at its path or in a folder of `PATH`, or says why it cannot be started.
///
/// A file is looked at as far as it says how it is run. That it can be run is known only once it is started.
pub fn check_program(program: &OsStr, folder: &Path) -> Result<PathBuf, ProgramProblem> {
    if !folder.as_os_str().is_empty() && !folder.is_dir() {
        return Err(ProgramProblem::NoFolder { folder: folder.to_owned() });
    }
    let path = locate(program, folder)?;
    let is_empty = path.metadata().is_ok_and(|file| file.len() == 0);
    if is_empty {
        return Err(ProgramProblem::Empty { path });
    }
    match missing_interpreter(&path, folder) {
        Some(interpreter) => Err(ProgramProblem::NoInterpreter { path, interpreter }),
        None => Ok(path),
    }
}

fn locate(program: &OsStr, folder: &Path) -> Result<PathBuf, ProgramProblem> {
    let missing =
        || ProgramProblem::Missing { program: program.to_string_lossy().escape_debug().to_string() };
    if program.as_bytes().contains(&b'/') {
        let path = folder.join(program);
        return match path.metadata() {
            Err(_) => Err(missing()),
            Ok(found) if !found.is_file() => Err(ProgramProblem::NotAFile { path }),
            Ok(found) if !is_executable(&found) => Err(ProgramProblem::NotExecutable { path }),
            Ok(_) => Ok(path),
        };
    }
    let mut problem = missing();
    if program.is_empty() {
        return Err(problem);
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    for place in std::env::split_paths(&path) {
        let path = folder.join(place).join(program);
        match path.metadata() {
            Ok(found) if found.is_file() && is_executable(&found) => return Ok(path),
            Ok(found) if found.is_file() => problem = ProgramProblem::NotExecutable { path },
            Ok(_) | Err(_) => {}
        }
    }
    Err(problem)
}

fn is_executable(file: &Metadata) -> bool {
    file.permissions().mode() & 0o111 != 0
}

/// Missing interpreter of a script: the one that its first line names, or the program that `env` runs.
fn missing_interpreter(script: &Path, folder: &Path) -> Option<String> {
    let mut head = Vec::new();
    // A program may be executable and not readable.
    File::open(script).ok()?.take(FIRST_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).into_owned();
    let mut words = line.split_ascii_whitespace();
    let interpreter = words.next()?;
    // A path, never looked for in PATH.
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
