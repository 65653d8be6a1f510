//! The parts of RabbitMQ's management API that tests use.

use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

/// A client for one vhost.
#[derive(Clone, Debug)]
pub struct Management {
    client: Client,
    base: String,
    vhost: String,
}

/// A queue as the broker counts it; counts can be some seconds old.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Queue {
    /// Name.
    pub name: String,
    /// Ready and unacknowledged.
    pub messages: u64,
    /// Ready.
    pub messages_ready: u64,
    /// Delivered and not yet acknowledged.
    pub messages_unacknowledged: u64,
    /// Consumers.
    pub consumers: u64,
    /// Arguments it was declared with.
    pub arguments: Value,
}

/// A message as a plain client of the management API sees it.
#[derive(Clone, Debug)]
pub struct Message {
    /// Exchange it was published to or dead-lettered through.
    pub exchange: String,
    /// Routing key.
    pub routing_key: String,
    /// Body.
    pub body: Vec<u8>,
    /// Properties by name; `headers` is one of them.
    pub properties: Value,
}

impl Management {
    pub(crate) fn new(base: &str, vhost: &str) -> Self {
        Self {
            client: client(),
            base: base.to_owned(),
            vhost: vhost.to_owned(),
        }
    }

    /// The same with connections of its own: those of a clone are driven by the runtime that opened them, which may be
    /// blocked by the very drop that has to be done.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(&self.base, &self.vhost)
    }

    /// The vhost it speaks of.
    pub fn vhost(&self) -> &str {
        &self.vhost
    }

    /// A queue of the vhost.
    pub async fn queue(&self, name: &str) -> Option<Queue> {
        // A list, not the single queue: it answers from the same tables on all versions.
        self.queues().await.into_iter().find(|queue| queue.name == name)
    }

    /// All queues of the vhost, counted now and not by the statistics of some seconds ago.
    pub async fn queues(&self) -> Vec<Queue> {
        let path = format!(
            "/api/queues/{}?disable_stats=true&enable_queue_totals=true",
            self.vhost
        );
        self.get(&path)
            .await
            .and_then(|queues| serde_json::from_value(queues).ok())
            .unwrap_or_default()
    }

    /// Names of the vhost's connections; one appears some seconds after it was opened.
    pub async fn connection_names(&self) -> Vec<String> {
        let connections = self.get(&format!("/api/vhosts/{}/connections", self.vhost)).await;
        let connections = connections
            .and_then(|c| c.as_array().cloned())
            .unwrap_or_default();
        connections
            .iter()
            .filter_map(|c| c["name"].as_str())
            .map(ToOwned::to_owned)
            .collect()
    }

    /// The vhost's connections: the name that the client gave, and the broker's own.
    pub async fn clients(&self) -> Vec<(String, String)> {
        let connections = self.get(&format!("/api/vhosts/{}/connections", self.vhost)).await;
        let connections = connections
            .and_then(|c| c.as_array().cloned())
            .unwrap_or_default();
        let named = |c: &Value| {
            let client = c["client_properties"]["connection_name"]
                .as_str()
                .unwrap_or_default();
            Some((client.to_owned(), c["name"].as_str()?.to_owned()))
        };
        connections.iter().filter_map(named).collect()
    }

    /// Closes a connection by the broker's name for it; false if there is none any more.
    pub async fn close(&self, name: &str) -> bool {
        let path = format!("/api/connections/{}", encode(name));
        if self.get(&path).await.is_none() {
            return false;
        }
        self.delete(&path).await;
        true
    }

    /// The prefetch of each consumer of `queue` in this vhost.
    pub async fn prefetches(&self, queue: &str) -> Vec<u64> {
        let consumers = self.get(&format!("/api/consumers/{}", self.vhost)).await;
        let consumers = consumers.and_then(|c| c.as_array().cloned()).unwrap_or_default();
        consumers
            .iter()
            .filter(|consumer| consumer["queue"]["name"] == queue)
            .filter_map(|consumer| consumer["prefetch_count"].as_u64())
            .collect()
    }

    /// How many channels are open in this vhost.
    pub async fn channels(&self) -> usize {
        let channels = self.get(&format!("/api/vhosts/{}/channels", self.vhost)).await;
        channels
            .and_then(|c| c.as_array().map(Vec::len))
            .unwrap_or_default()
    }

    /// Closes all of the vhost's connections that are listed.
    pub async fn close_connections(&self) {
        self.close_those(&self.connection_names().await).await;
    }

    /// Closes the connections called `names`; those that are gone are none of its business.
    pub async fn close_those(&self, names: &[String]) {
        for name in names {
            let path = format!("/api/connections/{}", encode(name));
            self.send(self.request(Method::DELETE, &path)).await;
        }
    }

    /// Removes every binding between an exchange and a queue.
    pub async fn unbind(&self, exchange: &str, queue: &str) {
        let path = format!(
            "/api/bindings/{}/e/{}/q/{}",
            self.vhost,
            encode(exchange),
            encode(queue)
        );
        let bindings = self
            .get(&path)
            .await
            .and_then(|b| b.as_array().cloned())
            .unwrap_or_default();
        for key in bindings.iter().filter_map(|b| b["properties_key"].as_str()) {
            self.send(self.request(Method::DELETE, &format!("{path}/{}", encode(key))))
                .await;
        }
    }

    /// Adds a user with a password and the given permissions on the vhost: `(configure, write, read)` patterns.
    pub async fn add_user(&self, name: &str, password: &str, permissions: (&str, &str, &str)) {
        let user = json!({"password": password, "tags": ""});
        self.send(
            self.request(Method::PUT, &format!("/api/users/{name}"))
                .json(&user),
        )
        .await;
        let (configure, write, read) = permissions;
        let granted = json!({"configure": configure, "write": write, "read": read});
        let path = format!("/api/permissions/{}/{name}", self.vhost);
        self.send(self.request(Method::PUT, &path).json(&granted)).await;
    }

    /// Sets a policy, given as the API takes it.
    pub async fn put_policy(&self, name: &str, policy: &Value) {
        let path = format!("/api/policies/{}/{}", self.vhost, encode(name));
        self.send(self.request(Method::PUT, &path).json(policy)).await;
    }

    /// Gives a user a tag such as `policymaker`, and the password anew.
    pub async fn tag_user(&self, name: &str, password: &str, tag: &str) {
        let user = json!({"password": password, "tags": tag});
        let request = self.request(Method::PUT, &format!("/api/users/{name}"));
        self.send(request.json(&user)).await;
    }

    /// Removes a user.
    pub async fn remove_user(&self, name: &str) {
        self.send(self.request(Method::DELETE, &format!("/api/users/{name}")))
            .await;
    }

    /// Publishes `body` with properties such as `{"headers": {..}, "delivery_mode": 2}`; says whether it was routed to a queue.
    pub async fn publish(&self, exchange: &str, routing_key: &str, body: &[u8], properties: Value) -> bool {
        let exchange = if exchange.is_empty() {
            "amq.default"
        } else {
            exchange
        };
        let path = format!("/api/exchanges/{}/{}/publish", self.vhost, encode(exchange));
        let message = json!({
            "routing_key": routing_key,
            "payload": BASE64.encode(body),
            "payload_encoding": "base64",
            "properties": properties,
        });
        let answer = self.post(&path, &message).await;
        answer["routed"]
            .as_bool()
            .expect("the management API says whether it routed")
    }

    /// Takes up to `count` messages from `queue`: they are gone from it.
    pub async fn take(&self, queue: &str, count: usize) -> Vec<Message> {
        let path = format!("/api/queues/{}/{}/get", self.vhost, encode(queue));
        let order = json!({"count": count, "ackmode": "ack_requeue_false", "encoding": "base64"});
        let messages = self.post(&path, &order).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let messages = messages.as_array().expect("the management API answers a list");
        messages
            .iter()
            .map(|message| Message {
                exchange: text(&message["exchange"]),
                routing_key: text(&message["routing_key"]),
                body: BASE64
                    .decode(text(&message["payload"]))
                    .expect("the payload is base64, as asked for"),
                properties: message["properties"].clone(),
            })
            .collect()
    }

    /// Imports definitions into the vhost; the broker's words if it refuses them.
    pub async fn import_definitions(&self, definitions: &str) -> Result<(), String> {
        let request = self
            .request(Method::POST, &format!("/api/definitions/{}", self.vhost))
            .header("content-type", "application/json")
            .body(definitions.to_owned());
        let response = request.send().await.expect("the management API answers");
        match response.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("{status} {}", response.text().await.unwrap_or_default())),
        }
    }

    /// Any POST that must succeed, with its answer; `null` where there is none.
    pub async fn post(&self, path: &str, body: &Value) -> Value {
        let response = self.request(Method::POST, path).json(body).send().await;
        let response = response.expect("the management API answers");
        let status = response.status();
        let answer = response.text().await.unwrap_or_default();
        assert!(status.is_success(), "management API: {status} {answer}");
        if answer.is_empty() {
            return Value::Null;
        }
        serde_json::from_str(&answer).expect("the management API answers JSON")
    }

    pub(crate) async fn create_vhost(&self, user: &str) {
        let body = json!({"description": "a test of Tidegate"});
        self.send(
            self.request(Method::PUT, &format!("/api/vhosts/{}", self.vhost))
                .json(&body),
        )
        .await;
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        self.send(
            self.request(Method::PUT, &format!("/api/permissions/{}/{user}", self.vhost))
                .json(&all),
        )
        .await;
    }

    pub(crate) async fn delete_vhost(&self) {
        // Some versions take a minute and more for one with thousands of queues.
        let patience = std::time::Duration::from_secs(300);
        let request = self.request(Method::DELETE, &format!("/api/vhosts/{}", self.vhost));
        self.send(request.timeout(patience)).await;
    }

    /// Any GET, as JSON; `None` where there is no such thing.
    pub async fn get(&self, path: &str) -> Option<Value> {
        let response = self
            .request(Method::GET, path)
            .send()
            .await
            .expect("the management API answers");
        (response.status() == StatusCode::OK).then_some(())?;
        response.json().await.ok()
    }

    /// Any PUT that must succeed; `path` begins with `/api/`.
    pub async fn put(&self, path: &str, body: &Value) {
        self.send(self.request(Method::PUT, path).json(body)).await;
    }

    /// Any DELETE that must succeed.
    pub async fn delete(&self, path: &str) {
        self.send(self.request(Method::DELETE, path)).await;
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base))
    }

    async fn send(&self, request: RequestBuilder) {
        let response = request.send().await.expect("the management API answers");
        let status = response.status();
        // Gone already is as good as removed.
        let fine = status.is_success() || status == StatusCode::NOT_FOUND;
        assert!(
            fine,
            "management API: {status} {}",
            response.text().await.unwrap_or_default()
        );
    }
}

fn client() -> Client {
    let patience = std::time::Duration::from_secs(60);
    Client::builder()
        .timeout(patience)
        // A busy broker closes kept connections just as they are used again.
        .pool_max_idle_per_host(0)
        .build()
        .expect("a client without TLS can be built")
}

/// Percent-encodes a name for a path.
fn encode(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    name.bytes()
        .map(|b| {
            if plain(b) {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect()
}
