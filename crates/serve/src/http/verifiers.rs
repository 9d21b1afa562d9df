//! Which certificates of servers are accepted: those of trusted authorities, or any.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};

/// Checks a server's certificate, and that the handshake is signed by the certificate's key.
#[derive(Debug)]
pub(super) struct Verifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Which certificates are accepted.
#[derive(Debug)]
enum Trust {
    Any,
    /// Those of authorities, and a trusted one that is the server's own, as `openssl req -x509`
    /// makes it.
    ///
    /// webpki refuses the second kind because it is one of an authority. But its owner, as any
    /// trusted authority, could sign another certificate for the same name: to accept it trusts
    /// nobody further.
    Some {
        /// Without any, https fails with an error of its own, and http works.
        authorities: Option<Arc<WebPkiServerVerifier>>,
        /// The digests of the trusted certificates.
        itself: BTreeSet<[u8; 32]>,
    },
}

impl Verifier {
    /// Accepts any certificate.
    pub(super) fn of_any(provider: Arc<CryptoProvider>) -> Self {
        Self { trust: Trust::Any, provider }
    }

    /// Trusts `roots`, which were made of `certificates`.
    pub(super) fn of_roots(
        roots: RootCertStore,
        certificates: &[CertificateDer<'_>],
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let itself =
            certificates.iter().map(|certificate| Sha256::digest(certificate).into()).collect();
        let authorities = match roots.is_empty() {
            true => None,
            false => Some(
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                    .build()?,
            ),
        };
        Ok(Self { trust: Trust::Some { authorities, itself }, provider })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Trust::Some { authorities, itself } = &self.trust else {
            return Ok(ServerCertVerified::assertion());
        };
        let authorities = authorities
            .as_ref()
            .ok_or(Error::InvalidCertificate(CertificateError::UnknownIssuer))?;
        let verified = authorities.verify_server_cert(certificate, chain, name, ocsp, now);
        // The time is checked before. A certificate of another time has another error.
        let is_authority = matches!(&verified, Err(Error::InvalidCertificate(CertificateError::Other(error))) if error.to_string() == CA_AS_SERVER);
        if !is_authority || !itself.contains(&<[u8; 32]>::from(Sha256::digest(certificate))) {
            return verified;
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The name of webpki's error for a certificate of an authority that a server has as its own.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// Of an authority for `server.example`, by itself: `openssl req -x509`. Valid from November
    /// 2026 for ten years.
    const CERTIFICATE: &[u8] = b"-----BEGIN CERTIFICATE-----\n\
MIIBkTCCATigAwIBAgIUF7Y8zvfEfDUNPhmhwOYxJZDGPxkwCgYIKoZIzj0EAwIw\n\
ETEPMA0GA1UEAwwGc2VydmVyMB4XDTI2MTEyNzEwNDU0NFoXDTM2MTEyNDEwNDU0\n\
NFowETEPMA0GA1UEAwwGc2VydmVyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n\
EIHZgDrglJD8ozfjjVxPAv5CC4kGIfyStJ5RpzzeFoYBF2W7fx+CwoPrIAuDzeQH\n\
SmhnwIvd58pMbHxH/2VCo6NuMGwwHQYDVR0OBBYEFEyZ71Oby+N1JdVBY4IMr2Pa\n\
3tNoMB8GA1UdIwQYMBaAFEyZ71Oby+N1JdVBY4IMr2Pa3tNoMA8GA1UdEwEB/wQF\n\
MAMBAf8wGQYDVR0RBBIwEIIOc2VydmVyLmV4YW1wbGUwCgYIKoZIzj0EAwIDRwAw\n\
RAIgJfja1u43VC2qPxI+951rqXPezEbfzV03u+NQ7uzOkPwCIHx8easy8Su+CpWR\n\
NY93JPSAaTUwYodQ8tNmmcT3oFiH\n\
-----END CERTIFICATE-----\n";

    #[test]
    fn a_trusted_certificate_of_the_server_itself_is_accepted() {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let error = |itself: &[CertificateDer<'_>], name: &'static str, seconds| {
            let mut roots = RootCertStore::empty();
            roots.add(certificate.clone()).unwrap();
            let trusted =
                Verifier::of_roots(roots, itself, Arc::new(ring::default_provider())).unwrap();
            let (name, now) = (
                ServerName::try_from(name).unwrap(),
                UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            );
            trusted
                .verify_server_cert(&certificate, &[], &name, &[], now)
                .err()
                .map(|error| error.to_string())
        };
        let own = std::slice::from_ref(&certificate);
        assert_eq!(error(own, "server.example", 1_900_000_000), None);
        for (itself, name, seconds, reason) in [
            (own, "other.example", 1_900_000_000, "not valid for name"),
            (own, "server.example", 2_200_000_000, "expired"),
            (own, "server.example", 1_700_000_000, "not valid yet"),
            (&[], "server.example", 1_900_000_000, CA_AS_SERVER),
        ] {
            let error = error(itself, name, seconds).unwrap();
            assert!(error.contains(reason), "{error}");
        }
    }
}
