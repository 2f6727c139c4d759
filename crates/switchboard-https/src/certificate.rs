//! The certificate that a listener shows, and the files that certificates are read from.

use std::io;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use switchboard_sys::files::{Dir, FileError};
use tokio::sync::watch;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::error::Error;
use crate::trust;

/// The largest file that is read: the CA bundles of systems have about 200 KiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// What a certificate says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The host names and addresses that it is for.
    pub names: Vec<String>,
    /// From when it counts.
    pub not_before: Timestamp,
    /// Until when it counts.
    pub not_after: Timestamp,
    /// Its serial number, in hexadecimal.
    pub serial: String,
}

/// A certificate with its chain and key, ready to be shown.
#[derive(Debug, Clone)]
pub(crate) struct LoadedCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) certificate: Certificate,
}

/// The certificate that new connections are shown. Those that are there keep theirs.
#[derive(Debug)]
pub(crate) struct CurrentCertificate {
    key: RwLock<Option<Arc<CertifiedKey>>>,
    info: watch::Sender<Option<Certificate>>,
}

impl CurrentCertificate {
    /// None yet: handshakes fail until there is one.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Self { key: RwLock::default(), info: watch::Sender::new(None) })
    }

    /// Shows another from now on.
    pub(crate) fn show(&self, loaded: LoadedCertificate) {
        *self.key.write() = Some(loaded.key);
        self.info.send_replace(Some(loaded.certificate));
    }

    /// What is shown now, and every change of it.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Certificate>> {
        self.info.subscribe()
    }
}

impl ResolvesServerCert for CurrentCertificate {
    /// One certificate, whatever name the client asked for: it may reach us by an address, or by a name of a proxy.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().clone()
    }
}

impl LoadedCertificate {
    /// From a chain and a key in PEM. `what` names it in errors.
    pub(crate) fn from_pem(what: &'static str, chain: &[u8], key: &[u8]) -> Result<Self, PemError> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .ok()
            .filter(|chain| !chain.is_empty())
            .ok_or(PemError::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PemError::NoKey)?;
        let certificate = Certificate::read(&chain[0]).ok_or(PemError::NoCertificate)?;
        let key =
            CertifiedKey::from_der(chain, key, &trust::crypto_provider()).map_err(|error| match error {
                rustls::Error::InconsistentKeys(_) => PemError::OtherKey,
                source => PemError::Unusable(Error::Unusable { what, source }),
            })?;
        Ok(Self { key: Arc::new(key), certificate })
    }
}

/// What is wrong with a chain and a key.
#[derive(Debug)]
pub(crate) enum PemError {
    NoCertificate,
    NoKey,
    OtherKey,
    Unusable(Error),
}

impl Certificate {
    /// Reads what is in a certificate; nothing where it is none.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let validity = certificate.validity();
        let time = |seconds| Timestamp::from_second(seconds).ok();
        let mut names = Vec::new();
        if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
            for name in &alternative.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push((*name).to_owned()),
                    GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        Some(Self {
            names,
            not_before: time(validity.not_before.timestamp())?,
            not_after: time(validity.not_after.timestamp())?,
            serial: certificate.raw_serial_as_string().replace(':', ""),
        })
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    use std::net::IpAddr;
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let sixteen = <[u8; 16]>::try_from(bytes).map(IpAddr::from);
    four.or(sixteen).ok().map(|address| address.to_string())
}

/// Reads a file that the owner has named. Links are followed: where certificates are renewed, they usually are links.
pub(crate) fn read_file(what: &'static str, path: &Path) -> Result<Vec<u8>, Error> {
    let missing = || Error::NoFile { what, path: path.to_owned() };
    let real = match path.canonicalize() {
        Ok(real) => real,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
        Err(source) => return Err(FileError::Io { action: "find", path: path.to_owned(), source }.into()),
    };
    let (Some(folder), Some(name)) = (real.parent(), real.file_name().and_then(|name| name.to_str())) else {
        return Err(missing());
    };
    let contents = Dir::open_root(folder)?.read(name, MAX_FILE_BYTES)?.ok_or_else(missing)?;
    Ok(contents.bytes)
}
