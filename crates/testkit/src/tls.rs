//! A TLS server in front of a service that speaks none, with a CA of its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

/// Listens on a port of its own until dropped. Its certificate is for `localhost`, and for no address.
#[derive(Debug)]
pub struct TlsProxy {
    address: SocketAddr,
    dir: TempDir,
    accepting: JoinHandle<()>,
}

impl TlsProxy {
    /// Starts one before the service that listens at `target` (`HOST:PORT`). Runs on the runtime of the caller.
    pub async fn before(target: &str) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no name is a bad one");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).expect("a CA signs itself");
        let issuer = Issuer::new(params, key);
        let own_key = KeyPair::generate().expect("a key can be made");
        let names = vec!["localhost".to_owned()];
        let own = CertificateParams::new(names)
            .and_then(|params| params.signed_by(&own_key, &issuer))
            .expect("a CA signs");
        let dir = tempfile::tempdir().expect("there is room");
        std::fs::write(dir.path().join("ca.pem"), ca.pem()).expect("there is room");

        let key = PrivateKeyDer::Pkcs8(own_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config
                    .with_no_client_auth()
                    .with_single_cert(vec![own.der().clone()], key)
            })
            .expect("key and certificate fit");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let target = target.to_owned();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (acceptor, target) = (acceptor.clone(), target.clone());
                tokio::spawn(async move {
                    // A client that doesn't trust the CA ends here.
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(target).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self {
            address,
            dir,
            accepting,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The file of its CA, in PEM.
    pub fn ca_file(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
