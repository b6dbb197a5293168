// Numbers as text, axes, and line styles.

// Four significant digits, with a real minus sign.
function number(value) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  return text.replace('-', '−');
}

function fixed(value, digits = 2) {
  const text = value.toFixed(digits);
  return Number(text) === 0 ? (0).toFixed(digits) : text.replace('-', '−');
}

function signed(value, digits = 2) {
  const text = fixed(value, digits);
  return value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

function isShare(metric) {
  return /success_rate|credit\/(effective|exact|turned_positive|active_groups|above_theta)|truncated/.test(metric);
}

function metricText(metric, value) {
  if (value === null || value === undefined) return '–';
  return isShare(metric) ? `${fixed(100 * value, 1)} %` : number(value);
}

// About `count` round numbers that span low..high.
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(k * step);
  return found;
}

function linear(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

// A method is drawn as in every figure (analysis/naming/line_styles.py); dark colours are paler on dark paper.
function lineStyle({ colour, dark, dash }) {
  return { colour, paint: `light-dark(${colour}, ${dark})`, dash: dash || 'none' };
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

// Sample standard deviation; 0 for a single value.
function deviation(values) {
  const centre = mean(values);
  return values.length < 2
    ? 0
    : Math.sqrt(values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1));
}
