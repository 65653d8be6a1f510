//! Why a server is not reached, or doesn't let us in, and what to do about it.
//!
//! Imports the findings and `tls`.

use std::time::Duration;

use super::{Cause, Finding, Part, Severity, tls::Tls};

/// Why there is no connection, from the name to the vhost or database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The host's name leads nowhere.
    UnknownHost(String),
    /// The host answers that nobody listens on that port.
    Refused,
    /// No way to the host.
    NoRoute(String),
    /// No answer in that time.
    Silent(Duration),
    /// TLS failed.
    Tls(Tls),
    /// The URL says no TLS, and the port speaks TLS only.
    WantsTls,
    /// Something answers that speaks another protocol.
    OtherProtocol,
    /// The server closed the connection without a word.
    Dropped,
    /// Wrong user or password, or the server's rules keep the user out.
    Login(String),
    /// The vhost or database does not exist.
    Missing(String),
    /// It exists, and this user has no right to it.
    NoRight(String),
    /// Anything else, in the server's or the library's words.
    Other(String),
}

/// Where it was tried. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What it is.
    pub part: Part,
    /// The URL without its password.
    pub place: String,
    /// Host of the URL.
    pub host: String,
    /// Port of the URL, or that of its scheme.
    pub port: u16,
    /// The user.
    pub user: String,
    /// The vhost, or the name of the database.
    pub inside: String,
}

impl Target {
    /// Environment variable and key of the setting.
    fn setting(&self) -> &'static str {
        match self.part {
            Part::Broker | Part::Topology | Part::Settings => "AMQP_URL (amqp.url)",
            Part::Management => "MANAGEMENT_URL (management.url)",
            Part::Database => "DATABASE_URL (database.url)",
        }
    }

    fn service(&self) -> &'static str {
        match self.part {
            Part::Broker | Part::Topology | Part::Settings => "RabbitMQ",
            Part::Management => "RabbitMQ's management plugin",
            Part::Database => "Postgres",
        }
    }

    fn is_database(&self) -> bool {
        self.part == Part::Database
    }

    /// What the user's rights are about.
    fn space(&self) -> &'static str {
        if self.is_database() { "database" } else { "vhost" }
    }

    /// The finding for `why`.
    pub fn unreached(&self, why: &Unreached) -> Finding {
        let (rule, what, next) = self.words(why);
        Finding::ok(self.part, rule, what, self.place.as_str()).bad(Severity::Error(Cause::Unreachable), next)
    }

    fn words(&self, why: &Unreached) -> (&'static str, String, String) {
        let (setting, service, space) = (self.setting(), self.service(), self.space());
        // Whichever way it was asked for: the management API's URL names none.
        let vhost_setting = "AMQP_URL (amqp.url)";
        let (host, port, user, inside) = (&self.host, self.port, &self.user, &self.inside);
        let (host_word, user_word, inside_word) = (word(host), word(user), word(inside));
        match why {
            Unreached::UnknownHost(said) => (
                "unknown_host",
                format!("the host name {host} leads to no address ({said})"),
                format!(
                    "correct the host in {setting}, or look at this machine's DNS: getent hosts {host_word}"
                ),
            ),
            Unreached::Refused => {
                let plugin = if self.part == Part::Management {
                    " (rabbitmq-plugins enable rabbitmq_management)"
                } else {
                    ""
                };
                (
                    "refused",
                    format!("nobody listens on port {port} of {host}"),
                    format!("start {service} there{plugin}, or correct host and port in {setting}"),
                )
            }
            Unreached::NoRoute(said) => (
                "no_route",
                format!("{host} can't be reached from this machine ({said})"),
                format!("look at network and firewall between this machine and {host}:{port}"),
            ),
            Unreached::Silent(waited) => (
                "silent",
                format!(
                    "port {port} of {host} did not answer within {} s",
                    waited.as_secs_f64()
                ),
                format!(
                    "look at firewalls on the way, whether {service} hangs, and at host and port in {setting}"
                ),
            ),
            Unreached::Tls(why) => self.tls_words(why),
            Unreached::WantsTls => (
                "tls_required",
                format!("port {port} of {host} speaks TLS only, and the URL says no TLS"),
                if self.is_database() {
                    format!("add sslmode=require, or verify-full, to {setting}")
                } else {
                    let (plain, tls) = match self.part {
                        Part::Management => ("http", "https"),
                        _ => ("amqp", "amqps"),
                    };
                    format!("write {tls}:// instead of {plain}:// in {setting}, or name the port without TLS")
                },
            ),
            Unreached::OtherProtocol => (
                "other_protocol",
                format!("what answers on port {port} of {host} is not {service}"),
                format!("correct host and port in {setting}"),
            ),
            Unreached::Dropped => (
                "dropped",
                format!("port {port} of {host} takes connections and closes them without a word"),
                format!("look at {service}'s log; a proxy without a server behind it does the same"),
            ),
            Unreached::Login(said) => (
                "login",
                format!("user {user:?} is not let in: {said}"),
                if self.is_database() {
                    format!(
                        "correct user and password in {setting}; if they are right, look at the server's pg_hba.conf"
                    )
                } else {
                    format!(
                        "correct user and password in {setting}; rabbitmqctl authenticate_user {user_word} tries them"
                    )
                },
            ),
            Unreached::Missing(said) => (
                if self.is_database() {
                    "database_missing"
                } else {
                    "vhost_missing"
                },
                format!("the {space} {inside:?} does not exist: {said}"),
                if self.is_database() {
                    format!("correct the name in {setting}, or createdb {inside_word}")
                } else {
                    format!("correct the vhost in {vhost_setting}, or rabbitmqctl add_vhost {inside_word}")
                },
            ),
            Unreached::NoRight(said) => (
                if self.is_database() {
                    "database_denied"
                } else {
                    "vhost_denied"
                },
                format!("user {user:?} has no right to the {space} {inside:?}: {said}"),
                if self.is_database() {
                    format!("GRANT CONNECT ON DATABASE \"{inside}\" TO \"{user}\"")
                } else {
                    format!(
                        "rabbitmqctl set_permissions -p {inside_word} {user_word} CONFIGURE WRITE READ; `tidegate topology export \
                         --format permissions` prints what each role needs"
                    )
                },
            ),
            Unreached::Other(said) => (
                "failed",
                format!("no connection: {said}"),
                format!("look at {service}'s log and at {setting}"),
            ),
        }
    }

    fn tls_words(&self, why: &Tls) -> (&'static str, String, String) {
        let (setting, host, port) = (self.setting(), &self.host, self.port);
        match why {
            Tls::Untrusted => (
                "tls_untrusted",
                format!(
                    "the certificate of {host}:{port} is signed by no authority that this machine trusts: a wrong or \
                     missing CA"
                ),
                if self.is_database() {
                    format!("name the CA's file by sslrootcert=FILE in {setting}")
                } else {
                    "add the CA to this machine's certificates, or name a file with all that are to be trusted by \
                     SSL_CERT_FILE=FILE"
                        .to_owned()
                },
            ),
            Tls::WrongName => (
                "tls_name",
                format!("the certificate of {host}:{port} is for another name than {host}"),
                format!("write the name that the certificate has into {setting}, or issue one for {host}"),
            ),
            Tls::OutOfDate => (
                "tls_out_of_date",
                format!("the certificate of {host}:{port} has expired, or is not valid yet"),
                "renew it; if it is valid, set this machine's clock".to_owned(),
            ),
            Tls::NotSpoken => (
                "tls_not_spoken",
                format!("the URL says TLS, and port {port} of {host} speaks none"),
                if self.is_database() {
                    format!("switch ssl on in the server, or take sslmode out of {setting}")
                } else {
                    let (ports, plain) = match self.part {
                        Part::Management => ("usually 15671", "http"),
                        _ => ("usually 5671", "amqp"),
                    };
                    format!("name the port with TLS ({ports}) in {setting}, or write {plain}://")
                },
            ),
            Tls::Alert(said) => (
                "tls_alert",
                format!("{host}:{port} ended the TLS handshake: {said}"),
                "look at the server's log: it may ask for a client certificate, or for another version of TLS"
                    .to_owned(),
            ),
            Tls::Other(said) => (
                "tls_failed",
                format!("TLS with {host}:{port} failed: {said}"),
                "look at the server's certificate: openssl s_client -connect HOST:PORT -showcerts".to_owned(),
            ),
        }
    }
}

/// A server that answers, and so slowly that what was asked of it did not end within `limit`.
pub fn too_slow(part: Part, what: &str, limit: Duration, place: &str) -> Finding {
    let said = format!(
        "{what} answered too slowly: it was not looked at to the end within {} s",
        limit.as_secs()
    );
    Finding::ok(part, "slow", said, place).bad(
        Severity::Error(Cause::Unreachable),
        "run it again; if it stays so, look at the load of that server and at the network on the way",
    )
}

/// `text` as one word of a command line.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// What a broker's words at the opening of a vhost mean.
pub fn of_vhost(said: &str) -> Unreached {
    let words = said.to_lowercase();
    if words.contains("limit") {
        // The user may, and not now.
        Unreached::Other(said.to_owned())
    } else if words.contains("not found") {
        Unreached::Missing(said.to_owned())
    } else if words.contains("refused for user") || words.contains("access to vhost") {
        Unreached::NoRight(said.to_owned())
    } else {
        Unreached::Other(said.to_owned())
    }
}

#[cfg(test)]
mod tests;
