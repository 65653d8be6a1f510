//! The picture as Mermaid text, which many wikis and code hosts draw by themselves.
//!
//! Their drawing programs stop at 500 arrows and 50,000 characters unless told otherwise: about a hundred owners.

use super::{
    super::model::Topology,
    graph::{Graph, How, Kind, graph},
};

/// The topology as a Mermaid flowchart.
pub fn mermaid(topology: &Topology) -> String {
    let Graph { boxes, arrows } = graph(topology, &topology.objects());
    let mut text = String::from("flowchart LR\n");
    for (number, node) in boxes.iter().enumerate() {
        let title = label(std::iter::once(&node.title).chain(&node.lines));
        if node.kind == Kind::Owner {
            text.push_str(&format!("  subgraph n{number}[\"{title}\"]\n"));
            for (at, queue) in node.queues.iter().enumerate() {
                let label = label(std::iter::once(&queue.name).chain(&queue.lines));
                text.push_str(&format!("    n{number}q{at}[(\"{label}\")]\n"));
            }
            text.push_str("  end\n");
        } else {
            let (open, close) = match node.kind {
                Kind::Router => ("{{", "}}"),
                Kind::Delay => ("([", "])"),
                Kind::Entry | Kind::Owner | Kind::Net | Kind::Dead => ("[", "]"),
            };
            text.push_str(&format!("  n{number}{open}\"{title}\"{close}\n"));
        }
    }
    for arrow in &arrows {
        let line = match arrow.how {
            How::Routed => "-->",
            How::DeadLettered => "-. dead letters .->",
            How::Unrouted => "-. no binding .->",
            How::Carried => "==>",
        };
        text.push_str(&format!("  n{} {line} n{}\n", arrow.from, arrow.to));
    }
    text
}

fn label<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    lines.map(|line| escape(line)).collect::<Vec<_>>().join("<br/>")
}

/// `text` as entities wherever Mermaid, or the HTML that it makes, could take it for more than text.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || !c.is_ascii() || " .-_:/*,".contains(c) {
            escaped.push(c);
        } else {
            escaped.push_str(&format!("#{};", u32::from(c)));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_its_label_or_begins_markup() {
        assert_eq!(escape("order.close.#"), "order.close.#35;");
        assert_eq!(escape("\"<b>&`]"), "#34;#60;b#62;#38;#96;#93;");
        assert_eq!(escape("größe 任务"), "größe 任务");
    }
}
