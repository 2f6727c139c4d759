//! One long-running owner per hub and service: `serve` must not run twice.

use std::fs::File;
use std::io::{Read, Seek, Write};

use crate::error::HubError;
use crate::files::Dir;
use crate::owner::Owner;

/// The right to be the one that runs a service. Given back when dropped, and when the process dies.
#[derive(Debug)]
pub struct Service {
    _file: File,
}

/// Takes the right to run `name`, or says who has it.
pub(crate) fn claim(folder: &Dir, name: &str) -> Result<Service, HubError> {
    let file_name = format!("hub.{name}");
    let mut file = open(folder, &file_name)?;
    if file.try_lock().is_err() {
        return Err(HubError::ServiceTaken { service: name.to_owned(), holder: read_holder(&mut file) });
    }
    // Only for the words in which others are told; the lock is what counts, and a full disk takes that.
    let _ = sign(&mut file);
    Ok(Service { _file: file })
}

/// Takes a share in the right to run `name`, which keeps everybody from having it alone; nothing where
/// somebody has.
pub(crate) fn share(folder: &Dir, name: &str) -> Result<Option<Service>, HubError> {
    let mut file = open(folder, &format!("hub.{name}"))?;
    if file.try_lock_shared().is_err() {
        return Ok(None);
    }
    // Only for the words in which others are told; several may share, and the last one signs.
    let _ = sign(&mut file);
    Ok(Some(Service { _file: file }))
}

/// Opens the file of a service; one that is there will do where none can be written, as locks need no more.
fn open(folder: &Dir, name: &str) -> Result<File, HubError> {
    match folder.open_own(name) {
        Err(error) if error.is_disk() => folder.open_existing(name)?.ok_or_else(|| error.into()),
        opened => Ok(opened?),
    }
}

/// Writes down who has a service.
fn sign(file: &mut File) -> std::io::Result<()> {
    let owner = Owner::this_process().to_string();
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(owner.as_bytes())
}

/// Who has the right to run `name` now. Asking may turn away whoever claims it in the same instant.
pub(crate) fn holder(folder: &Dir, name: &str) -> Result<Option<String>, HubError> {
    let file_name = format!("hub.{name}");
    let Some(mut file) = folder.open_existing(&file_name)? else { return Ok(None) };
    Ok(file.try_lock_shared().is_err().then(|| read_holder(&mut file)))
}

fn read_holder(file: &mut File) -> String {
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    describe(&holder)
}

fn describe(holder: &str) -> String {
    match holder.parse::<Owner>() {
        Ok(owner) => format!("process {} on {}", owner.pid(), owner.host()),
        Err(_) => "another process".to_owned(),
    }
}
