//! One long-running owner per hub and service: `serve` must not run twice.

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::error::HubError;
use crate::files::{Dir, FileError};
use crate::owner::Owner;

/// The right to be the one that runs a service. Given back when dropped, and when the process dies.
#[derive(Debug)]
pub struct Service {
    _file: File,
}

/// Takes the right to run `name`, or says who has it.
pub(crate) fn claim(folder: &Dir, name: &'static str) -> Result<Service, HubError> {
    let file_name = format!("hub.{name}");
    let mut file = folder.open_own(&file_name)?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        return Err(HubError::ServiceTaken { service: name, holder: describe(&holder) });
    }
    let owner = Owner::this_process().to_string();
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(owner.as_bytes()))
        .map_err(|source| FileError::Io { action: "write", path: folder.path().join(&file_name), source })?;
    Ok(Service { _file: file })
}

fn describe(holder: &str) -> String {
    match holder.parse::<Owner>() {
        Ok(owner) => format!("process {} on {}", owner.pid(), owner.host()),
        Err(_) => "another process".to_owned(),
    }
}
