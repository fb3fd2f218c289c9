//! Reads a page back: its elements, the pictures and packed numbers in it, and what its charts show.
//!
//! Charts are read as a person reads them, by the ticks of their axes and the names beside their rows, so that a curve on the
//! scale of another chart, or a cell in another row, is seen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// An element of HTML or SVG.
#[derive(Debug, Default)]
pub struct Element {
    pub name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Node>,
}

#[derive(Debug)]
enum Node {
    Element(Element),
    Text(String),
}

/// Elements without an end.
const VOID: [&str; 6] = ["img", "input", "meta", "br", "link", "hr"];

/// Parses a page of ours, whose attributes are quoted and whose elements are closed; panics at what it does not know.
pub fn parse(page: &str) -> Element {
    let mut open = vec![Element { name: "page".to_string(), ..Element::default() }];
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        add(&mut open, Node::Text(unescape(&rest[..at])));
        rest = &rest[at..];
        if let Some(end) = rest.strip_prefix("</") {
            let (name, after) = end.split_once('>').expect("a closed tag");
            let element = open.pop().expect("an open element");
            assert_eq!(element.name, name.trim(), "an element is closed in another one");
            add(&mut open, Node::Element(element));
            rest = after;
        } else if rest.starts_with("<!") {
            rest = rest.split_once('>').expect("a closed declaration").1;
        } else {
            rest = start_tag(&mut open, &rest[1..]);
        }
    }
    assert_eq!(open.len(), 1, "{} is not closed", open[open.len() - 1].name);
    open.remove(0)
}

fn add(open: &mut [Element], node: Node) {
    open.last_mut().expect("an open element").children.push(node);
}

/// Reads an element's start behind its `<`, and gives what follows it.
fn start_tag<'p>(open: &mut Vec<Element>, text: &'p str) -> &'p str {
    let end = text.find([' ', '\n', '>', '/']).expect("a name");
    let mut element = Element { name: text[..end].to_string(), ..Element::default() };
    let mut rest = text[end..].trim_start();
    while !rest.starts_with(['>', '/']) {
        let end = rest.find(['=', ' ', '>']).expect("an attribute");
        let name = rest[..end].to_string();
        let (value, after) = match rest[end..].strip_prefix("=\"") {
            Some(value) => value.split_once('"').expect("a quoted value"),
            None => ("", &rest[end..]),
        };
        element.attributes.push((name, unescape(value)));
        rest = after.trim_start();
    }
    let (slash, after) = rest.split_once('>').expect("a closed tag");
    if slash == "/" || VOID.contains(&element.name.as_str()) {
        add(open, Node::Element(element));
        return after;
    }
    if ["script", "style"].contains(&element.name.as_str()) {
        let (inside, after) = after.split_once(&format!("</{}>", element.name)).expect("an end");
        element.children.push(Node::Text(inside.to_string()));
        add(open, Node::Element(element));
        return after;
    }
    open.push(element);
    after
}

fn unescape(text: &str) -> String {
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
    plain.replace("&nbsp;", "\u{a0}").replace("&amp;", "&")
}

impl Element {
    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of an attribute that must be there.
    pub fn value(&self, name: &str) -> &str {
        self.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }

    /// A number among its attributes.
    pub fn number(&self, name: &str) -> f64 {
        self.value(name).parse().unwrap_or_else(|_| panic!("{name} is no number in {self:?}"))
    }

    /// Whether it has a class.
    pub fn is(&self, class: &str) -> bool {
        self.get("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
    }

    /// The elements directly in it.
    pub fn children(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// All elements in it, in the order of the page.
    pub fn inside(&self) -> Vec<&Element> {
        self.children().flat_map(|child| std::iter::once(child).chain(child.inside())).collect()
    }

    /// All elements of a name in it.
    pub fn all(&self, name: &str) -> Vec<&Element> {
        self.inside().into_iter().filter(|element| element.name == name).collect()
    }

    /// The first element of a name in it.
    pub fn first(&self, name: &str) -> &Element {
        self.all(name).first().copied().unwrap_or_else(|| panic!("no {name} in {}", self.name))
    }

    /// All elements of a class in it.
    pub fn of_class(&self, class: &str) -> Vec<&Element> {
        self.inside().into_iter().filter(|element| element.is(class)).collect()
    }

    /// The element of an id.
    pub fn by_id(&self, id: &str) -> &Element {
        let found: Vec<&Element> = self.inside().into_iter().filter(|element| element.get("id") == Some(id)).collect();
        assert_eq!(found.len(), 1, "elements of the id {id}");
        found[0]
    }

    /// Its text.
    pub fn text(&self) -> String {
        let text = |node: &Node| match node {
            Node::Element(element) => element.text(),
            Node::Text(text) => text.clone(),
        };
        self.children.iter().map(text).collect()
    }

    /// The figures under each heading of level three, by heading.
    pub fn figures(&self) -> Vec<(String, &Element)> {
        let named = |figure: &&Element| figure.children().any(|child| child.name == "h3");
        self.all("figure").into_iter().filter(named).map(|figure| (figure.first("h3").text(), figure)).collect()
    }

    /// The figure under a heading.
    pub fn figure(&self, heading: &str) -> &Element {
        let found: Vec<&Element> =
            self.figures().into_iter().filter(|(title, _)| title == heading).map(|(_, figure)| figure).collect();
        assert_eq!(found.len(), 1, "figures called {heading}");
        found[0]
    }

    /// The JSON of the first script in it.
    pub fn json(&self) -> Value {
        let script = if self.name == "script" { self } else { self.first("script") };
        serde_json::from_str(&script.text()).expect("JSON")
    }

    /// The rows of the first table in it: the texts of their cells.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let cells = |row: &&Element| row.children().map(|cell| cell.text().trim().to_string()).collect();
        self.first("table").all("tr").iter().map(cells).collect()
    }

    /// The picture of an `img`, as rows of red, green, blue and alpha.
    pub fn picture(&self) -> Picture {
        let data = self.get("src").or(self.get("href")).expect("an address");
        let png = unpack(data.strip_prefix("data:image/png;base64,").expect("a PNG in the page"));
        let picture = image::load_from_memory(&png).expect("a PNG").into_rgba8();
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        Picture { width, height, pixels: picture.pixels().map(|pixel| pixel.0).collect() }
    }
}

/// A picture of a page.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<[u8; 4]>,
}

/// Bytes that a page holds as text.
pub fn unpack(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}

/// Numbers of four bytes that a page holds as text.
pub fn floats(text: &str) -> Vec<f32> {
    unpack(text).chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four bytes"))).collect()
}

/// Weights that a page holds as shares of 65535.
pub fn shares(text: &str) -> Vec<f32> {
    let share = |two: &[u8]| f32::from(u16::from_le_bytes([two[0], two[1]])) / 65535.0;
    unpack(text).chunks_exact(2).map(share).collect()
}

/// Panics unless numbers are about equal.
#[track_caller]
pub fn close(what: &str, shown: f64, expected: f64, limit: f64) {
    assert!((shown - expected).abs() <= limit, "{what}: the page shows {shown}, not {expected}");
}

/// A number of a text: of `26.9%`, `2,000`, `-1.5e-3`, `10k`.
pub fn parsed(text: &str) -> f64 {
    let plain = text.trim().trim_end_matches(['%', '\u{a0}', ' ']).replace(',', "");
    let (digits, unit) = match plain.chars().last() {
        Some('k') => (&plain[..plain.len() - 1], 1e3),
        Some('M') => (&plain[..plain.len() - 1], 1e6),
        Some('G') => (&plain[..plain.len() - 1], 1e9),
        _ => (&plain[..], 1.0),
    };
    unit * digits.parse::<f64>().unwrap_or_else(|_| panic!("{text} is no number"))
}
