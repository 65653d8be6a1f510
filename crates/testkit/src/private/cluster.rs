//! A broker of several nodes, to stop one of them.

use super::PrivateServices;
use crate::{Services, Vhost};

/// RabbitMQ as a cluster and one Postgres that nothing else uses; stopped and removed when dropped.
#[derive(Debug)]
pub struct PrivateCluster {
    private: PrivateServices,
    nodes: Vec<Services>,
}

impl PrivateCluster {
    /// Starts `nodes` nodes as one cluster, and Postgres; takes half a minute.
    ///
    /// # Panics
    /// If they don't start or don't find each other, with what `./dev up` printed.
    pub async fn start(nodes: usize) -> Self {
        let (private, env) = PrivateServices::launch(&["--nodes", &nodes.to_string()]).await;
        let (amqp, management) = (env.value("AMQP_URLS"), env.value("MANAGEMENT_URLS"));
        let database = env.value("DATABASE_URL");
        let nodes = amqp.split(',').zip(management.split(','));
        let nodes = nodes.map(|(amqp, management)| Services {
            amqp: amqp.to_owned(),
            database: database.clone(),
            management: management.to_owned(),
        });
        let nodes = nodes.collect();
        Self { private, nodes }
    }

    /// Where a node is, by its number from 1; all nodes keep their ports.
    pub fn node(&self, number: usize) -> &Services {
        &self.nodes[number - 1]
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// AMQP URI of `vhost` on a node.
    pub fn amqp_url(&self, number: usize, vhost: &Vhost) -> String {
        let (authority, _) = self
            .node(number)
            .amqp
            .rsplit_once('/')
            .expect("./dev up writes a vhost");
        format!("{authority}/{}", vhost.name())
    }

    /// Host and port that a node listens on for AMQP.
    pub fn amqp_address(&self, number: usize) -> String {
        let url = self.node(number).amqp.as_str();
        let after_user = url.rsplit_once('@').map_or(url, |(_, rest)| rest);
        after_user.split('/').next().unwrap_or(after_user).to_owned()
    }

    /// Kills a node (`kill -9`): the others go on.
    pub async fn kill_node(&self, number: usize) {
        self.private.dev("kill-broker", &[&number.to_string()]).await;
    }

    /// Starts a node on its old data and waits until it serves.
    pub async fn start_node(&self, number: usize) {
        self.private.dev("start-broker", &[&number.to_string()]).await;
    }
}
