//! Trusted CAs of outgoing connections, and the crypto provider of both directions.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::certificate::read_file;
use crate::error::Error;

/// Supported TLS versions, 1.3 and 1.2. rustls does not implement older versions, which are broken.
pub(crate) const TLS_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// Returns the crypto provider. It is passed explicitly, so that a process-wide default set by other code does not
/// apply.
pub(crate) fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Builds the TLS configuration of the client.
///
/// Certificates are always verified, against the CAs of the system and of `ca_file`. A certificate that one of
/// `crl_files` revokes is rejected. A certificate with unknown revocation status is accepted, because the CRLs of all
/// public CAs are not available.
pub(crate) fn client_config(
    ca_file: Option<&Path>,
    crl_files: &[impl AsRef<Path>],
) -> Result<ClientConfig, Error> {
    let mut crls = Vec::new();
    for path in crl_files {
        let path = path.as_ref();
        let bytes = read_file("revocation list", path)?;
        let found = CertificateRevocationListDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>();
        match found {
            Ok(found) if !found.is_empty() => crls.extend(found),
            _ => {
                let (what, expected) = ("revocation list", "X509 CRL");
                return Err(Error::BadPem { what, path: path.to_owned(), expected });
            }
        }
    }
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(root_store(ca_file)?), crypto_provider())
            .with_crls(crls)
            .allow_unknown_revocation_status()
            .build()
            .map_err(|error| match error {
                rustls::client::VerifierBuilderError::NoRootAnchors => Error::NoCa,
                error => Error::Unusable {
                    what: "a revocation list",
                    source: rustls::Error::General(error.to_string()),
                },
            })?;
    let mut config = ClientConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(|source| Error::Unusable { what: "the TLS provider", source })?
        .with_webpki_verifier(verifier)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Loads the CAs of the system and of a file.
fn root_store(ca_file: Option<&Path>) -> Result<RootCertStore, Error> {
    let mut root_store = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::warn!(%error, "cannot read some of the system's CA certificates");
    }
    // Systems contain a few certificates that current rules reject; the others are used.
    let (_, unusable) = root_store.add_parsable_certificates(system.certs);
    if unusable > 0 {
        tracing::debug!(unusable, "skipped unusable CA certificates of the system");
    }
    if let Some(path) = ca_file {
        let what = "CA file";
        let bytes = read_file(what, path)?;
        let found = CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>().unwrap_or_default();
        if found.is_empty() {
            return Err(Error::BadPem { what, path: path.to_owned(), expected: "certificate" });
        }
        for certificate in found {
            root_store.add(certificate).map_err(|source| Error::Unusable { what: "the CA file", source })?;
        }
    }
    Ok(root_store)
}
