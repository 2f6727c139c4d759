//! Private certificate authority that one test trusts.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;

use crate::files;

/// Certificate authority with its certificate in a file. Its folder is removed on drop.
pub struct PrivateCa {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Issued {
    /// The certificate.
    pub cert: String,
    /// The private key of the certificate.
    pub key: String,
    /// The serial number of the certificate.
    pub serial: u64,
}

/// Validity period of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Valid from long ago until far in the future.
    Valid,
    /// Already expired.
    Expired,
}

impl PrivateCa {
    /// Creates an authority with a new key.
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("switchboard-ca-").unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "a test's own CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        files::put(folder.path().join("ca.pem"), certificate.pem());
        Self { folder, issuer: Issuer::new(params, key) }
    }

    /// Returns the path of the file with the authority's certificate.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Issues a certificate for host names and addresses.
    pub fn issue(&self, names: &[&str], life: Validity, serial: u64) -> Issued {
        let mut params =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = match life {
            Validity::Valid => date_time_ymd(2100, 1, 1),
            Validity::Expired => date_time_ymd(2021, 1, 1),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { cert: certificate.pem(), key: key.serialize_pem(), serial }
    }

    /// Issues a certificate and writes it to two files in the authority's folder.
    ///
    /// Returns the paths of the certificate and of the key.
    pub fn issue_files(&self, names: &[&str], life: Validity) -> (PathBuf, PathBuf) {
        let issued = self.issue(names, life, 1);
        let (cert, key) = (self.folder.path().join("cert.pem"), self.folder.path().join("key.pem"));
        issued.write(&cert, &key);
        (cert, key)
    }

    /// Writes a revocation list that revokes one certificate; returns its path.
    pub fn revoke(&self, serial: u64) -> PathBuf {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2022, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2022, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.folder.path().join("revoked.pem");
        files::put(&path, params.signed_by(&self.issuer).unwrap().pem().unwrap());
        path
    }
}

impl Default for PrivateCa {
    fn default() -> Self {
        Self::new()
    }
}

impl Issued {
    /// Writes both files atomically; only the owner may read the key.
    pub fn write(&self, cert: &Path, key: &Path) {
        let temp = key.with_extension("new");
        files::put(&temp, &self.key);
        files::chmod(&temp, 0o600);
        files::rename(&temp, key);
        files::put_by_rename(cert, &self.cert);
    }
}
