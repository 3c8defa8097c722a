//! A TLS server of rustls: accepts, completes handshakes, says "hello".
use std::io::Write;
use std::sync::Arc;

fn main() {
    let path = std::env::args().nth(1).unwrap();
    let pem = std::fs::read(path).unwrap();
    let certificates = rustls_pemfile::certs(&mut &pem[..]).map(|each| each.unwrap()).collect();
    let key = rustls_pemfile::private_key(&mut &pem[..]).unwrap().unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .unwrap();
    let config = Arc::new(config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    for stream in listener.incoming() {
        let config = config.clone();
        std::thread::spawn(move || {
            let mut stream = stream.unwrap();
            let mut tls = rustls::ServerConnection::new(config).unwrap();
            let _ = rustls::Stream::new(&mut tls, &mut stream).write_all(b"hello");
            tls.send_close_notify();
            let _ = tls.write_tls(&mut stream);
        });
    }
}
