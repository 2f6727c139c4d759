//! Certificate authority that is created for one run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use switchboard_sys::files::Dir;
use tokio_rustls::TlsConnector;

/// Certificate authority that only this run trusts.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

/// Certificate files of a server.
pub(super) struct Files {
    pub(super) ca: PathBuf,
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

impl Authority {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Ok(Self { issuer: Issuer::new(params, key), pem, der })
    }

    /// Issues a certificate for some addresses and writes it to files.
    pub(super) fn issue(&self, addresses: Vec<String>, folder: &Path) -> anyhow::Result<Files> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(addresses)?.signed_by(&key, &self.issuer)?;
        let dir = Dir::open_root(folder)?;
        let put = |name: &str, text: &str| -> anyhow::Result<PathBuf> {
            dir.replace(name, text.as_bytes(), 0o600)?;
            Ok(folder.join(name))
        };
        Ok(Files {
            ca: put("ca.pem", &self.pem)?,
            cert: put("cert.pem", &certificate.pem())?,
            key: put("key.pem", &key.serialize_pem())?,
        })
    }

    /// Returns a TLS connector that trusts this authority.
    pub(super) fn connector(&self) -> anyhow::Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }
}
