//! The picture as SVG: boxes in columns by what they are, arrows between them. One file, nothing beside it.
//!
//! A column for each step of a task's way is layout enough: what leads on goes to the right, and what goes back runs
//! below all boxes. So it needs no library that lays out any graph.

use std::fmt::Write;

use super::{
    super::model::Topology,
    graph::{Arrow, Graph, How, Kind, Node, graph},
};

/// Columns from left to right.
const COLUMNS: [Kind; 6] = [
    Kind::Delay,
    Kind::Entry,
    Kind::Owner,
    Kind::Net,
    Kind::Router,
    Kind::Dead,
];
/// Most characters of a line; the rest is in the box's tooltip.
const MAX_CHARS: usize = 48;
const CHAR_WIDTH: usize = 7;
const LINE: usize = 16;
const PADDING: usize = 10;
const BETWEEN_BOXES: usize = 18;
const BETWEEN_COLUMNS: usize = 110;
const MARGIN: usize = 24;
/// Between arrows that go back below the boxes.
const TRACK: usize = 12;

const STYLE: &str = "\
text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1f2933}\
.title{font-weight:bold}.small{fill:#52606d}\
rect{stroke:#7b8794;fill:#f5f7fa;rx:6}.delay{fill:#fff8e1}.entry{fill:#e3f2fd}.owner{fill:#fff}.queue{fill:#e8f5e9}\
.net{fill:#fdecea}.router{fill:#ede7f6}.dead{fill:#f8d7da}\
path{fill:none;stroke:#52606d;stroke-width:1.3}.dead-lettered{stroke:#c62828;stroke-dasharray:6 3}\
.unrouted{stroke:#9aa5b1;stroke-dasharray:2 3}.carried{stroke:#5e35b1}\
.head{stroke:none;fill:#52606d}.head.dead-lettered{fill:#c62828}.head.unrouted{fill:#9aa5b1}.head.carried{fill:#5e35b1}";

/// The ways that a task gets along an arrow, in the words of the legend.
const WAYS: [(How, &str); 4] = [
    (How::Routed, "binding, or end of a delay"),
    (How::DeadLettered, "dead letters"),
    (How::Unrouted, "no binding takes it"),
    (How::Carried, "carried by the router"),
];

/// A box with its place and size.
struct Placed<'a> {
    node: &'a Node,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// The topology as an SVG document.
pub fn svg(topology: &Topology) -> String {
    let Graph { boxes, arrows } = graph(topology, &topology.objects());
    let (placed, width, bottom) = place(&boxes);
    let mut lines = Vec::new();
    let mut tracks = 0;
    for arrow in &arrows {
        lines.push(path(arrow, &placed, bottom, &mut tracks));
    }
    let legend = bottom + (tracks + 2) * TRACK;
    let height = legend + 2 * LINE + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\">\n<title>Topology of {}</title>\n<style>{STYLE}</style>\n<defs>\n",
        escape(topology.names.prefix())
    );
    for (how, _) in WAYS {
        let _ = writeln!(
            out,
            "<marker id=\"{0}\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"head {0}\" d=\"M0 0L8 4L0 8z\"/></marker>",
            how.as_str()
        );
    }
    let _ = writeln!(
        out,
        "</defs>\n<rect width=\"{width}\" height=\"{height}\" style=\"fill:#fff;stroke:none\"/>"
    );
    for line in lines {
        out.push_str(&line);
    }
    for placed in &placed {
        draw(&mut out, placed);
    }
    let mut x = MARGIN;
    for (how, words) in WAYS {
        let _ = writeln!(
            out,
            "<path class=\"{0}\" d=\"M{x} {legend}h40\" marker-end=\"url(#{0})\"/>",
            how.as_str()
        );
        text(&mut out, x + 48, legend + 4, "small", words);
        x += 48 + words.len() * CHAR_WIDTH + 32;
    }
    out.push_str("</svg>\n");
    out
}

/// Boxes at their places, the picture's width, and where the lowest box ends.
fn place(boxes: &[Node]) -> (Vec<Placed<'_>>, usize, usize) {
    let mut placed: Vec<Placed<'_>> = boxes
        .iter()
        .map(|node| {
            let (width, height) = size(node);
            Placed {
                node,
                x: 0,
                y: 0,
                width,
                height,
            }
        })
        .collect();
    let column_height = |placed: &[Placed<'_>], kind: Kind| {
        let heights = placed
            .iter()
            .filter(|p| p.node.kind == kind)
            .map(|p| p.height + BETWEEN_BOXES);
        heights.sum::<usize>()
    };
    let tallest = COLUMNS
        .iter()
        .map(|kind| column_height(&placed, *kind))
        .max()
        .unwrap_or(0);
    let mut x = MARGIN;
    for kind in COLUMNS {
        let mut y = MARGIN + (tallest - column_height(&placed, kind)) / 2;
        let column: Vec<&mut Placed<'_>> = placed.iter_mut().filter(|p| p.node.kind == kind).collect();
        let widest = column.iter().map(|p| p.width).max().unwrap_or(0);
        for place in column {
            (place.x, place.y, place.width) = (x, y, widest);
            y += place.height + BETWEEN_BOXES;
        }
        x += widest + BETWEEN_COLUMNS;
    }
    (placed, x - BETWEEN_COLUMNS + MARGIN, MARGIN + tallest)
}

fn size(node: &Node) -> (usize, usize) {
    let mut widest = node
        .lines
        .iter()
        .chain([&node.title])
        .map(|line| width(line))
        .max()
        .unwrap_or(0);
    let mut height = 2 * PADDING + LINE * (1 + node.lines.len());
    for queue in &node.queues {
        for line in queue.lines.iter().chain([&queue.name]) {
            widest = widest.max(width(line) + 2 * PADDING);
        }
        height += queue_height(queue.lines.len());
    }
    (widest + 2 * PADDING, height)
}

fn queue_height(lines: usize) -> usize {
    LINE * (1 + lines) + 2 * PADDING
}

/// Pixels that a line takes at most. Letters beyond ASCII may be twice as wide.
fn width(line: &str) -> usize {
    let shown = cut(line);
    let cells = shown.chars().map(|c| if c.is_ascii() { 1 } else { 2 });
    cells.sum::<usize>() * CHAR_WIDTH + CHAR_WIDTH
}

/// An arrow: to the right straight across, back below all boxes, each on a track of its own.
fn path(arrow: &Arrow, placed: &[Placed<'_>], bottom: usize, tracks: &mut usize) -> String {
    let (from, to) = (&placed[arrow.from], &placed[arrow.to]);
    let middle = |p: &Placed<'_>| p.y + p.height / 2;
    let line = if from.x < to.x {
        let (x1, x2) = (from.x + from.width, to.x);
        let bend = (x2 - x1) / 2;
        format!(
            "M{x1} {}C{} {} {} {} {x2} {}",
            middle(from),
            x1 + bend,
            middle(from),
            x2 - bend,
            middle(to),
            middle(to)
        )
    } else if from.x == to.x {
        let x = from.x + from.width / 2;
        format!("M{x} {}L{x} {}", from.y + from.height, to.y)
    } else {
        *tracks += 1;
        let low = bottom + *tracks * TRACK;
        let (x1, x2) = (
            from.x + from.width / 2,
            to.x.saturating_sub(BETWEEN_BOXES / 2 + *tracks * 3),
        );
        format!(
            "M{x1} {}V{low}H{x2}V{}H{}",
            from.y + from.height,
            middle(to),
            to.x
        )
    };
    format!(
        "<path class=\"{0}\" d=\"{line}\" marker-end=\"url(#{0})\"/>\n",
        arrow.how.as_str()
    )
}

fn draw(out: &mut String, placed: &Placed<'_>) {
    let Placed {
        node,
        x,
        y,
        width,
        height,
    } = placed;
    let _ = writeln!(
        out,
        "<rect class=\"{}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>",
        node.kind.as_str()
    );
    let (left, mut down) = (x + PADDING, y + PADDING + LINE - 4);
    text(out, left, down, "title", &node.title);
    for line in &node.lines {
        down += LINE;
        text(out, left, down, "small", line);
    }
    let mut top = y + PADDING + LINE * (1 + node.lines.len());
    for queue in &node.queues {
        let height = queue_height(queue.lines.len());
        let _ = writeln!(
            out,
            "<rect class=\"queue\" x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\"/>",
            width - 2 * PADDING,
            height - PADDING / 2
        );
        let mut down = top + PADDING + LINE - 6;
        text(out, left + PADDING, down, "title", &queue.name);
        for line in &queue.lines {
            down += LINE;
            text(out, left + PADDING, down, "small", line);
        }
        top += height;
    }
}

fn text(out: &mut String, x: usize, y: usize, class: &str, line: &str) {
    let shown = cut(line);
    let whole = if shown == line {
        String::new()
    } else {
        format!("<title>{}</title>", escape(line))
    };
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{whole}{}</text>",
        escape(&shown)
    );
}

fn cut(line: &str) -> String {
    if line.chars().count() <= MAX_CHARS {
        return line.to_owned();
    }
    line.chars().take(MAX_CHARS - 1).chain(['…']).collect()
}

/// `text` as XML takes it. What XML has no way to write becomes a replacement character.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
