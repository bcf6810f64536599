"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const names = ["auto", "light", "dark"];
  const key = "compactor-report-theme";

  // Text and grid take the colours of the page; the colours of marks suit both themes.
  function template() {
    const style = getComputedStyle(root);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = {
      gridcolor: color("--grid"), linecolor: color("--line"), zerolinecolor: color("--line"),
      tickcolor: color("--line"), title: { font: { color: color("--muted") }, standoff: 8 },
      tickfont: { color: color("--muted") },
    };
    return {
      layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--text") },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        xaxis: axis, yaxis: axis,
        hoverlabel: {
          bgcolor: color("--hover"), bordercolor: color("--line"), align: "left", namelength: -1,
          font: { color: color("--text"), size: 12 },
        },
        modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--muted"), activecolor: color("--accent") },
      },
    };
  }

  let figures;
  let axis;

  const mostLabels = 6; // along an axis over time
  const labelGap = 4; // pixels between two of them

  const config = {
    displaylogo: false, responsive: false, displayModeBar: false, doubleClick: "reset", showTips: false,
  };

  // Leaves out labels that would overlap.
  function thinned(layout, width) {
    if (!layout.meta?.tick_pixels) return;
    const room = width - layout.margin.l - layout.margin.r;
    for (const [name, axis] of Object.entries(layout)) {
      if (!name.startsWith("xaxis")) continue;
      const [from, to] = axis.range;
      let free = -Infinity;
      const kept = [...axis.tickvals.keys()].filter((n) => {
        const place = (axis.tickvals[n] - from) / (to - from) * room;
        if (place < free) return false;
        free = place + layout.meta.tick_pixels;
        return true;
      });
      axis.tickvals = kept.map((n) => axis.tickvals[n]);
      axis.ticktext = kept.map((n) => axis.ticktext[n]);
    }
  }

  // On a narrow page the legend gets columns and the plot moves down.
  function narrowed(figure, width) {
    const names = figure.data.filter((trace) => trace.showlegend !== false).length;
    if (width >= 520) return;
    if (figure.layout.showlegend === false) return;
    const rows = Math.ceil(names / 2);
    Object.assign(figure.layout.legend, { entrywidth: 0.48, entrywidthmode: "fraction" });
    figure.layout.margin.t += 20 * (rows - 1);
    figure.layout.height += 20 * (rows - 1);
  }

  // On a time axis a burst of commits is one line; by version each commit gets the same room.
  function byVersion(figure) {
    const { versions } = figure.layout.meta;
    for (const trace of figure.data) trace.x = versions;
    const span = versions[versions.length - 1] - versions[0];
    figure.layout.meta.steps = span <= mostLabels; // Otherwise there would be labels between versions.
    Object.assign(figure.layout.xaxis, { type: "linear", tickformat: ",d", title: { text: "version" } });
  }

  // The width of a label depends on the hour (at midnight a date stands below it), on fractions of a second and on
  // the font. So an axis gets as many labels as do not overlap once they are drawn.
  function spread(element) {
    for (let count = mostLabels; count > 1; count--) {
      const steps = count === mostLabels && element.layout.meta.steps;
      const ticks = steps ? { "xaxis.dtick": 1 } : { "xaxis.tickmode": "auto" };
      Plotly.relayout(element, { "xaxis.nticks": count, ...ticks });
      const boxes = [...element.querySelectorAll(".xtick text")]
        .map((label) => label.getBoundingClientRect()).sort((a, b) => a.left - b.left);
      if (boxes.every((box, n) => n === 0 || boxes[n - 1].right + labelGap <= box.left)) return;
    }
  }

  // Figures and Plotly are gzip in base 85, with a comma for <, behind the number of bytes that fill its first word.
  const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

  function unpacked({ textContent: text }) {
    const value = new Uint8Array(128);
    [...digits].forEach((digit, place) => { value[digit.charCodeAt(0)] = place; });
    const words = (text.length - 1) / 5;
    const bytes = new DataView(new ArrayBuffer(4 * words));
    for (let word = 0; word < words; word++) {
      let number = 0;
      for (let at = 1 + 5 * word; at < 6 + 5 * word; at++) number = number * 85 + value[text.charCodeAt(at)];
      bytes.setUint32(4 * word, number);
    }
    const packed = new Blob([new Uint8Array(bytes.buffer, Number(text[0]))]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  async function load() {
    figures = JSON.parse(await unpacked(document.getElementById("figures")));
    const dated = Object.values(figures).find((figure) => figure.layout.meta?.axis);
    chooseAxis(dated?.layout.meta.axis);
    const packed = document.getElementById("plotly");
    const script = document.createElement("script");
    script.textContent = await unpacked(packed);
    packed.replaceWith(script);
  }

  function draw() {
    if (!window.Plotly) return;
    const colors = template();
    const card = getComputedStyle(root).getPropertyValue("--card").trim();
    for (const element of document.querySelectorAll("[data-chart]")) {
      const figure = structuredClone(figures[element.dataset.chart]);
      if (figure.layout.meta?.versions && axis === "version") byVersion(figure);
      thinned(figure.layout, element.clientWidth);
      narrowed(figure, element.clientWidth);
      for (const trace of figure.data) {
        // A gap separates neighbours in a row.
        if (trace.marker?.line?.width && trace.type === "bar") trace.marker.line.color = card;
      }
      Plotly.react(element, figure.data, { ...figure.layout, template: colors }, config);
      if (!figure.layout.meta?.versions) continue;
      spread(element);
      if (element.dataset.spreads) continue;
      element.dataset.spreads = "yes";
      // Zooming changes the labels.
      element.on("plotly_relayout", (changed) => "xaxis.nticks" in changed || spread(element));
    }
  }

  function choose(name) {
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    for (const button of document.querySelectorAll("[data-choice]")) {
      button.setAttribute("aria-pressed", String(button.dataset.choice === name));
    }
  }

  function remembered() {
    try {
      const name = localStorage.getItem(key);
      return names.includes(name) ? name : "auto";
    } catch {
      return "auto"; // The browser forbids storage.
    }
  }

  // All charts over time use the same axis, so that they can be compared.
  function chooseAxis(name) {
    axis = name;
    for (const button of document.querySelectorAll("[data-axis]")) {
      button.setAttribute("aria-pressed", String(button.dataset.axis === name));
    }
  }

  for (const element of document.querySelectorAll(".switch.axes")) {
    element.hidden = false;
    element.addEventListener("click", (event) => {
      const name = event.target.dataset.axis;
      if (!name) return;
      chooseAxis(name);
      draw();
    });
  }
  document.querySelector("#theme").hidden = false;
  document.querySelector("#theme").addEventListener("click", (event) => {
    const name = event.target.dataset.choice;
    if (!names.includes(name)) return;
    choose(name);
    draw();
    try {
      localStorage.setItem(key, name);
    } catch { /* The choice holds until the page is closed. */ }
  });
  system.addEventListener("change", draw);
  // Paper is narrow and white, whatever the screen.
  addEventListener("beforeprint", () => {
    root.dataset.printing = "yes";
    draw();
  });
  addEventListener("afterprint", () => {
    delete root.dataset.printing;
    draw();
  });
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(draw);
  });
  choose(remembered());
  load().then(() => {
    draw();
    root.dataset.drawn = "yes";
  }, () => {
    document.getElementById("old-browser").hidden = false;
  });
})();
