//! What a TLS library's text means. The libraries of the three protocols are one (rustls) under different errors, and its
//! texts are what all of them keep.
//!
//! Imports nothing of ours.

/// What is wrong with a TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// The server's certificate is signed by nobody whom this machine trusts.
    Untrusted,
    /// It is for another host name.
    WrongName,
    /// It has expired, or is not valid yet.
    OutOfDate,
    /// What answers there speaks no TLS.
    NotSpoken,
    /// The server ended the handshake by this alert.
    Alert(String),
    /// Anything else, in the library's words.
    Other(String),
}

/// What is wrong, if `text` is about TLS at all.
pub fn read(text: &str) -> Option<Tls> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["UnknownIssuer", "CaUsedAsEndEntity", "BadSignature"]) {
        Some(Tls::Untrusted)
    } else if has(&["NotValidForName", "not valid for name"]) {
        Some(Tls::WrongName)
    } else if has(&["certificate expired", "Expired", "NotValidYet", "not valid yet"]) {
        Some(Tls::OutOfDate)
    } else if has(&[
        "InvalidContentType",
        "received corrupt message",
        "server does not support TLS",
    ]) {
        Some(Tls::NotSpoken)
    } else if has(&["received fatal alert"]) {
        Some(Tls::Alert(text.to_owned()))
    } else if has(&["peer certificate", "TLS", "tls handshake"]) {
        Some(Tls::Other(text.to_owned()))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_library_are_understood() {
        let alert = "received fatal alert: the server requires a client certificate";
        for (text, expected) in [
            ("invalid peer certificate: UnknownIssuer", Some(Tls::Untrusted)),
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                Some(Tls::Untrusted),
            ),
            (
                "invalid peer certificate: certificate not valid for name \"mq\"; certificate is only valid for …",
                Some(Tls::WrongName),
            ),
            (
                "invalid peer certificate: certificate expired: verification time …",
                Some(Tls::OutOfDate),
            ),
            (
                "received corrupt message of type InvalidContentType",
                Some(Tls::NotSpoken),
            ),
            ("server does not support TLS", Some(Tls::NotSpoken)),
            (alert, Some(Tls::Alert(alert.to_owned()))),
            (
                "invalid peer certificate: Revoked",
                Some(Tls::Other("invalid peer certificate: Revoked".to_owned())),
            ),
            ("Connection refused (os error 111)", None),
            ("", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
