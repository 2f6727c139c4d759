//! Responses to ACME challenges, which prove control of a host name.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use http::StatusCode;
use parking_lot::RwLock;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::error::Error;
use crate::trust;

/// Pending challenges of the current order. Most of the time there are none.
#[derive(Debug, Default)]
pub(crate) struct Challenges {
    /// Challenge certificates by host name, for TLS-ALPN-01 (RFC 8737).
    certificates: RwLock<HashMap<String, Arc<CertifiedKey>>>,
    /// Challenge responses by token, for HTTP-01 (RFC 8555 section 8.3).
    answers: RwLock<HashMap<String, String>>,
}

impl Challenges {
    /// Creates the self-signed TLS-ALPN-01 certificate for a name.
    pub(super) fn add_certificate(&self, name: &str, digest: &[u8]) -> Result<(), Error> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let key = trust::crypto_provider()
            .key_provider
            .load_private_key(key)
            .map_err(|source| Error::Unusable { what: "the certificate of a challenge", source })?;
        // The key is not checked against the certificate, because rustls does not know the certificate's critical
        // extension.
        let key = CertifiedKey::new(vec![certificate.der().clone()], key);
        self.certificates.write().insert(name.to_owned(), Arc::new(key));
        Ok(())
    }

    /// Adds the HTTP-01 response for a token.
    pub(super) fn add_http_answer(&self, token: &str, answer: &str) {
        self.answers.write().insert(token.to_owned(), answer.to_owned());
    }

    /// Removes all challenges.
    pub(super) fn clear(&self) {
        self.certificates.write().clear();
        self.answers.write().clear();
    }

    /// Returns the router for plain HTTP, which serves the challenge responses and nothing else.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let answer = |State(challenges): State<Arc<Self>>, Path(token): Path<String>| async move {
            challenges.answers.read().get(&token).cloned().ok_or(StatusCode::NOT_FOUND)
        };
        Router::new().route("/.well-known/acme-challenge/{token}", get(answer)).with_state(self)
    }
}

impl ResolvesServerCert for Challenges {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.certificates.read().get(&name).cloned()
    }
}
