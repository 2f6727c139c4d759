//! The listener's current certificate, and loading of certificates from PEM.

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

/// Maximum file size. The CA bundles of operating systems have about 200 KiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Host names and IP addresses that the certificate is valid for.
    pub names: Vec<String>,
    /// Start of the certificate's validity.
    pub not_before: Timestamp,
    /// End of the certificate's validity.
    pub not_after: Timestamp,
    /// Serial number in hexadecimal.
    pub serial: String,
}

/// Certificate chain and key, ready for handshakes.
#[derive(Debug, Clone)]
pub(crate) struct LoadedCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) certificate: Certificate,
}

/// Certificate for new handshakes. Existing connections are not affected by a change.
#[derive(Debug)]
pub(crate) struct CurrentCertificate {
    key: RwLock<Option<Arc<CertifiedKey>>>,
    info: watch::Sender<Option<Certificate>>,
}

impl CurrentCertificate {
    /// Creates an empty slot. Handshakes fail until it holds a certificate.
    pub(crate) fn empty() -> Arc<Self> {
        Arc::new(Self { key: RwLock::default(), info: watch::Sender::new(None) })
    }

    /// Replaces the certificate for new handshakes.
    pub(crate) fn show(&self, loaded: LoadedCertificate) {
        *self.key.write() = Some(loaded.key);
        self.info.send_replace(Some(loaded.certificate));
    }

    /// Subscribes to the current certificate and its changes.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<Certificate>> {
        self.info.subscribe()
    }
}

impl ResolvesServerCert for CurrentCertificate {
    /// Returns the same certificate for any SNI name.
    ///
    /// A client may connect by an IP address, or by the name of a proxy.
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.key.read().clone()
    }
}

impl LoadedCertificate {
    /// Loads a chain and a key from PEM. `what` names the source in errors.
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

/// Defect of a chain or its key.
#[derive(Debug)]
pub(crate) enum PemError {
    NoCertificate,
    NoKey,
    OtherKey,
    Unusable(Error),
}

impl Certificate {
    /// Parses a certificate; `None` if it is malformed.
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

/// Reads a file that the owner configured. Follows symbolic links, which renewal tools such as certbot use.
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
