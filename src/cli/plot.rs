//! Speed against size as an SVG picture, as d2l plots it.

use crate::error::{Code, Error, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// A named line: (size, GFLOP/s).
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// The points, by rising size.
    pub points: Vec<(f64, f64)>,
}

const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// Draws the lines over logarithmic axes.
pub fn draw(path: &Path, title: &str, series: &[Series]) -> Result<()> {
    draw_svg(path, title, series)
        .map_err(|e| Error::machine(Code::CliPlot, format!("cannot draw {}: {e}", path.display())))
}

fn draw_svg(path: &Path, title: &str, series: &[Series]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let all = || series.iter().flat_map(|s| s.points.iter());
    let range = |f: fn(&(f64, f64)) -> f64, low: f64, high: f64| {
        let least = all().map(f).fold(f64::INFINITY, f64::min).max(1e-3);
        let most = all().map(f).fold(least, f64::max);
        (least * low..most * high).log_scale()
    };
    let root = SVGBackend::new(path, (800, 500)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(70)
        .build_cartesian_2d(range(|p| p.0, 0.9, 1.1), range(|p| p.1, 0.7, 1.4))?;
    chart
        .configure_mesh()
        .x_desc("n (matrices are n x n)")
        .y_desc("GFLOP/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .draw()?;
    for (i, s) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(s.points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(s.name.clone())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    root.present()?;
    Ok(())
}

/// A bar for each rung, in one colour.
pub struct Bars {
    /// What the legend says.
    pub name: String,
    /// Shares of a whole, where there is one.
    pub heights: Vec<Option<f64>>,
}

/// Draws groups of bars, one group a rung, beside a line at 1.
pub fn ladder(path: &Path, title: &str, rungs: &[&str], bars: &[Bars]) -> Result<()> {
    ladder_svg(path, title, rungs, bars)
        .map_err(|e| Error::machine(Code::CliPlot, format!("cannot draw {}: {e}", path.display())))
}

fn ladder_svg(
    path: &Path,
    title: &str,
    rungs: &[&str],
    bars: &[Bars],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let highest = bars.iter().flat_map(|b| &b.heights).flatten().fold(1.0f64, |a, b| a.max(*b)) * 1.12;
    let right = rungs.len() as f64 - 0.5;
    let root = SVGBackend::new(path, (900, 440)).into_drawing_area();
    root.fill(&WHITE)?;
    // The names of the rungs stand under the axis, inside the drawing.
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.5..right, -0.08 * highest..highest)?;
    let share = |y: &f64| if *y < 0.0 { String::new() } else { format!("{y:.1}") };
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().light_line_style(TRANSPARENT).y_label_formatter(&share).draw()?;
    chart.draw_series([PathElement::new([(-0.5, 1.0), (right, 1.0)], BLACK.mix(0.6))])?;
    let middle = ("sans-serif", 13).into_font().into_text_style(&root).pos(Pos::new(HPos::Center, VPos::Bottom));
    let texts = rungs.iter().enumerate().map(|(n, name)| (n as f64, -0.07 * highest, name.to_string()));
    chart.draw_series(texts.map(|(x, y, text)| Text::new(text, (x, y), middle.clone())))?;
    let width = 0.84 / bars.len().max(1) as f64;
    for (i, series) in bars.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let left = |n: usize| n as f64 - 0.42 + i as f64 * width;
        let known = || series.heights.iter().enumerate().filter_map(|(n, h)| Some((left(n), (*h)?)));
        chart
            .draw_series(known().map(|(x, h)| Rectangle::new([(x, 0.0), (x + 0.94 * width, h)], colour.filled())))?
            .label(series.name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
        let number = |(x, h): (f64, f64)| Text::new(format!("{h:.2}"), (x + 0.47 * width, h), middle.clone());
        chart.draw_series(known().map(number))?;
    }
    let legend = chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).margin(16).draw();
    legend?;
    root.present()?;
    Ok(())
}

/// What a product reaches of the library's speed.
pub struct Ratio {
    /// Its types.
    pub kind: String,
    /// Rows and columns of C.
    pub size: [i64; 2],
    /// Its operations.
    pub operations: f64,
    /// The library's time over ours.
    pub ratio: f64,
}

/// Draws ratios against operations, a colour for each type, and below them a map over rows and columns of C.
pub fn ratios(path: &Path, title: &str, points: &[Ratio]) -> Result<()> {
    ratios_svg(path, title, points)
        .map_err(|e| Error::machine(Code::CliPlot, format!("cannot draw {}: {e}", path.display())))
}

fn ratios_svg(path: &Path, title: &str, points: &[Ratio]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, (900, 900)).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(420);
    against_operations(&above, title, points)?;
    map(&below, points)?;
    root.present()?;
    Ok(())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn against_operations(
    area: &Area<'_>,
    title: &str,
    points: &[Ratio],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let least = points.iter().map(|p| p.ratio).fold(0.5, f64::min) * 0.9;
    let most = points.iter().map(|p| p.ratio).fold(2.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((1e6..4e12).log_scale(), (least..most).log_scale())?;
    let mesh = &mut chart.configure_mesh();
    mesh.x_desc("operations").y_desc("library's time / ours").x_label_formatter(&|x| format!("{x:.0e}")).draw()?;
    chart.draw_series([PathElement::new([(1e6, 1.0), (4e12, 1.0)], BLACK.mix(0.6))])?;
    let mut kinds: Vec<&str> = points.iter().map(|p| p.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for (i, kind) in kinds.into_iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let own = points.iter().filter(|p| p.kind == kind);
        chart
            .draw_series(own.map(|p| Circle::new((p.operations, p.ratio), 3, colour.filled())))?
            .label(kind)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    Ok(())
}

/// Green from the library's speed on, red at half of it and below.
fn map(area: &Area<'_>, points: &[Ratio]) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let largest = points.iter().flat_map(|p| p.size).max().unwrap_or(1) as f64 * 1.2;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d((0.8..largest).log_scale(), (0.8..largest).log_scale())?;
    let mesh = &mut chart.configure_mesh();
    let whole = |x: &f64| format!("{x:.0}");
    let mesh =
        mesh.x_desc("columns of C (red: half of the library's speed; green: its speed and more)").y_desc("rows of C");
    mesh.x_label_formatter(&whole).y_label_formatter(&whole).draw()?;
    let colour = |ratio: f64| {
        let good = ((ratio - 0.5) / 0.5).clamp(0.0, 1.0);
        RGBColor((210.0 * (1.0 - good)) as u8 + 20, (150.0 * good) as u8 + 20, 40)
    };
    chart.draw_series(points.iter().map(|p| {
        let [rows, columns] = p.size.map(|n| n as f64);
        Circle::new((columns, rows), 4, colour(p.ratio).filled())
    }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ladder_has_a_bar_a_rung_that_was_measured() {
        let path = std::env::temp_dir().join(format!("warploom-ladder-{}.svg", std::process::id()));
        let bars = |name: &str, heights: [Option<f64>; 2]| Bars { name: name.into(), heights: heights.into() };
        let both = [bars("large", [Some(0.01), Some(0.93)]), bars("small", [None, Some(1.2)])];
        ladder(&path, "shares", &["naive", "recommended"], &both).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for part in ["naive", "recommended", "large", "small", "0.01", "0.93", "1.20"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn ratios_are_drawn_against_operations_and_on_a_map() {
        let path = std::env::temp_dir().join(format!("warploom-ratios-{}.svg", std::process::id()));
        let one = |kind: &str, ratio: f64| Ratio { kind: kind.into(), size: [64, 4096], operations: 1e9, ratio };
        ratios(&path, "random products", &[one("f16", 1.2), one("s8", 0.4)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for part in ["random products", "f16", "s8", "operations", "rows of C"] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert_eq!(text.matches("<circle").count(), 6, "two in each drawing, and two in the legend");
    }

    #[test]
    fn a_picture_names_its_lines() {
        let path = std::env::temp_dir().join(format!("warploom-plot-{}.svg", std::process::id()));
        let series = |name: &str, f: f64| Series { name: name.into(), points: vec![(256.0, f), (512.0, 2.0 * f)] };
        draw(&path, "speed", &[series("ours", 100.0), series("cuBLAS", 300.0)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(text.starts_with("<svg") && text.contains("ours") && text.contains("cuBLAS"), "{text}");
    }
}
