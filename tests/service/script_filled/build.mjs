// Builds the pages of frameworks below pages/ and the small applications below apps/:
//
//     npm install && node build.mjs
//
// A page is the HTML that a server sends; an application also has its scripts, for the tests with a browser.
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import * as esbuild from 'esbuild'
import { solidPlugin } from 'esbuild-plugin-solid'
import svelte from 'esbuild-svelte'

const here = import.meta.dirname
const work = path.join(here, '.work')
const lorem = 'The tide gauge at the old pier was read twice a day until 1974, by hand, in all weathers. '
const article = lorem.repeat(6)

function write(file, text) {
  mkdirSync(path.dirname(file), { recursive: true })
  writeFileSync(file, text)
  return file
}
const page = (verdict, name, html) => write(path.join(here, 'pages', verdict, `${name}.html`), html.trim() + '\n')
const source = (name, text) => write(path.join(work, name), text)
const shell = (title, body, extra = '') => `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${title}</title>${extra}</head>
<body>${body}</body></html>`

async function bundle(name, entry, options = {}) {
  const result = await esbuild.build({
    entryPoints: [entry], bundle: true, minify: true, format: 'esm', target: 'es2022', splitting: true,
    outdir: path.join(here, 'apps', name), entryNames: 'app', chunkNames: '[name]-[hash]', legalComments: 'none',
    define: { 'process.env.NODE_ENV': '"production"' }, nodePaths: [path.join(here, 'node_modules')], ...options,
  })
  return result
}
async function serverModule(name, text, options = {}) {
  const entry = source(name, text)
  const outfile = entry.replace(/\.\w+$/, '.server.mjs')
  await esbuild.build({
    entryPoints: [entry], bundle: true, format: 'esm', platform: 'node', outfile,
    nodePaths: [path.join(here, 'node_modules')], banner: {
      js: `import { createRequire } from 'node:module'; const require = createRequire(${JSON.stringify(outfile)});`,
    }, ...options,
  })
  return import(pathToFileURL(outfile))
}

rmSync(work, { recursive: true, force: true })
for (const name of ['apps', 'pages/script-filled', 'pages/complete']) {
  rmSync(path.join(here, name), { recursive: true, force: true })
}

// Applications: a router with thirty routes and a lazy chunk (Preact), and one of each kind of script.
const routes = `export const routes = Array.from({ length: 30 }, (_, n) => n)
export const text = n => \`Station \${n} has a gauge of its own. ${lorem}\``
source('routes.js', routes)
source('route.jsx', `import { h } from 'preact'; import { text } from './routes.js'
export default ({ n }) => <article><h1>Station {n}</h1><p>{text(n)}</p></article>`)
await bundle('router', source('router.jsx', `import { h, render } from 'preact'; import { useState, useEffect } from 'preact/hooks'
import { routes } from './routes.js'
const path = () => Number(location.pathname.match(/[0-9]+/)?.[0] ?? 0)
function App() {
  const [Route, set] = useState(null)
  useEffect(() => { import('./route.jsx').then(found => set(() => found.default)) }, [])
  const go = (event, n) => { event.preventDefault(); history.pushState({}, '', '/route/' + n); location.reload() }
  return <div><nav>{routes.map(n => <a href={'/route/' + n} onClick={e => go(e, n)}>Station {n}</a>)}</nav>
    {Route ? <Route n={path()} /> : <p>…</p>}</div>
}
render(<App />, document.getElementById('root'))`), { jsxFactory: 'h' })
write(path.join(here, 'apps/router/index.html'), shell('Stations', '<div id="root"></div><script type="module" src="/router/app.js"></script>'))

const later = `const load = () => new Promise(done => setTimeout(done, 2000)).then(() => fetch('/data.json')).then(r => r.json())`
await bundle('svelte', source('svelte.js', `import App from './App.svelte'; import { mount } from 'svelte'
mount(App, { target: document.body })`), {
  plugins: [svelte({ compilerOptions: { css: 'injected' } })], mainFields: ['svelte', 'browser', 'module', 'main'], conditions: ['svelte', 'browser'],
  ...(source('App.svelte', `<script>${later}</script>
<main>{#await load()}<p>Loading…</p>{:then data}<h1>{data.title}</h1><p>{data.text}</p>{/await}</main>`), {}),
})
write(path.join(here, 'apps/svelte/index.html'), shell('Svelte', '', '<script type="module" src="/svelte/app.js"></script>'))

await bundle('solid', source('solid.jsx', `import { createResource, Show } from 'solid-js'; import { render } from 'solid-js/web'
function App() {
  const [data] = createResource(() => fetch('/data.json').then(r => r.json()))
  return <Show when={data()} fallback={<p>Loading…</p>}><h1>{data().title}</h1><p>{data().text}</p></Show>
}
render(() => <App />, document.getElementById('app'))`), { plugins: [solidPlugin()] })
write(path.join(here, 'apps/solid/index.html'), shell('Solid', '<div id="app"></div><script type="module" src="/solid/app.js"></script>'))

await bundle('lit', source('lit.js', `import { LitElement, html } from 'lit'
customElements.define('tide-card', class extends LitElement { render() { return html\`<section><slot></slot></section>\` } })
customElements.define('tide-page', class extends LitElement {
  render() { return html\`<h1>Tides</h1><tide-card><p>${lorem}</p></tide-card><a href="/route/3">Station 3</a>\` }
})`))
write(path.join(here, 'apps/lit/index.html'), shell('Lit', '<tide-page></tide-page><script type="module" src="/lit/app.js"></script>'))

await bundle('alpine', source('alpine.js', `import Alpine from 'alpinejs'
Alpine.data('gauges', () => ({ open: false, items: [], async init() { this.items = await (await fetch('/data.json')).json().then(d => [d.title, d.text]) } }))
Alpine.start()`))
write(path.join(here, 'apps/alpine/index.html'), shell('Alpine', `<main x-data="gauges"><h1>Gauges</h1>
<ul><template x-for="item in items"><li x-text="item"></li></template></ul>
<p x-show="open">This paragraph is hidden by the script.</p></main><script type="module" src="/alpine/app.js"></script>`))

await bundle('htmx', source('htmx.js', `import 'htmx.org'`))
write(path.join(here, 'apps/htmx/index.html'), shell('htmx', `<main><h1>Levels</h1>
<div hx-get="/fragment" hx-trigger="load">Loading…</div></main><script type="module" src="/htmx/app.js"></script>`))
for (const name of readdirSync(path.join(here, 'apps'))) {
  page('script-filled', `app-${name}`, readFileSync(path.join(here, 'apps', name, 'index.html'), 'utf8'))
}

// Server-side rendering: the text is in the page, and a script hydrates it.
const hydrate = '<script type="module" src="/assets/index.js"></script>'
const React = await serverModule('react-server.jsx', `import React from 'react'; import { renderToString } from 'react-dom/server'
export default () => renderToString(<main><h1>Pier</h1><p>${lorem}</p><p>${lorem}</p></main>)`)
page('complete', 'react-hydrated', shell('Pier', `<div id="root">${React.default()}</div>${hydrate}`))
const Preact = await serverModule('preact-server.jsx', `import { h } from 'preact'; import { renderToString } from 'preact-render-to-string'
export default () => renderToString(<main><h1>Pier</h1><p>${lorem}</p></main>)`, { jsxFactory: 'h' })
page('complete', 'preact-hydrated-short', shell('Pier', `<div id="app">${Preact.default()}</div>${hydrate}`))
const Vue = await serverModule('vue-server.js', `import { createSSRApp, h } from 'vue'; import { renderToString } from 'vue/server-renderer'
export default () => renderToString(createSSRApp({ render: () => h('main', [h('h1', 'Pier'), h('p', ${JSON.stringify(article)})]) }))`)
page('complete', 'vue-hydrated', shell('Pier', `<div id="app">${await Vue.default()}</div>${hydrate}`))
source('Pier.svelte', `<main><h1>Pier</h1><p>${article}</p></main>`)
const Svelte = await serverModule('svelte-server.js', `import Pier from './Pier.svelte'; import { render } from 'svelte/server'
export default () => render(Pier).body`, { plugins: [svelte({ compilerOptions: { generate: 'server' } })] })
page('complete', 'svelte-hydrated', shell('Pier', `<div style="display: contents">${Svelte.default()}</div>${hydrate}`))
const Solid = await serverModule('solid-server.jsx', `import { renderToString } from 'solid-js/web'
export default () => renderToString(() => <main><h1>Pier</h1><p>${article}</p></main>)`, { plugins: [solidPlugin({ solid: { generate: 'ssr', hydratable: true } })], conditions: ['node'] })
page('complete', 'solid-hydrated', shell('Pier', `<div id="root">${Solid.default()}</div>${hydrate}`))
const Lit = await serverModule('lit-server.js', `import { render } from '@lit-labs/ssr'; import { collectResult } from '@lit-labs/ssr/lib/render-result.js'
import { LitElement, html } from 'lit'
customElements.define('tide-page', class extends LitElement { render() { return html\`<h1>Tides</h1><p>${lorem}${lorem}</p>\` } })
export default () => collectResult(render(html\`<tide-page></tide-page>\`))`)
page('complete', 'lit-declarative', shell('Tides', `${await Lit.default()}${hydrate}`))

// Frameworks with a build of their own.
const run = (folder, ...command) => execFileSync('npx', command, { cwd: folder, stdio: 'inherit', env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1', ASTRO_TELEMETRY_DISABLED: '1', NUXT_TELEMETRY_DISABLED: '1' } })
const tidy = html => html.replace(/<style[^>]*>[^]*?<\/style>/g, '').replace(/(<script[^>]*>)(?!<\/script>)[^]{300,}?(<\/script>)/g, '$1/* shortened */$2')
const built = (verdict, name, file) => page(verdict, name, tidy(readFileSync(file, 'utf8')))

const next = path.join(work, 'next')
write(path.join(next, 'package.json'), '{"private": true}')
write(path.join(next, 'next.config.mjs'), `export default { output: 'export', images: { unoptimized: true }, outputFileTracingRoot: ${JSON.stringify(here)}, turbopack: { root: ${JSON.stringify(here)} } }`)
write(path.join(next, 'app/layout.jsx'), `export const metadata = { title: 'Tides' }
export default ({ children }) => <html lang="en"><body><header><a href="/">Tides</a> <a href="/about">About</a></header>{children}<footer>© Harbour office, pier road 4</footer></body></html>`)
write(path.join(next, 'app/page.jsx'), `'use client'
import dynamic from 'next/dynamic'
const Chart = dynamic(() => import('./chart'), { ssr: false, loading: () => <p>Loading…</p> })
export default () => <main><h1>Levels</h1><Chart /></main>`)
write(path.join(next, 'app/chart.jsx'), `export default () => <p>${article}</p>`)
write(path.join(next, 'app/effect/page.jsx'), `'use client'
import { useEffect, useState } from 'react'
export default function Page() {
  const [text, set] = useState(''); useEffect(() => { fetch('/data.json').then(r => r.json()).then(d => set(d.text)) }, [])
  return <main>{text ? <p>{text}</p> : <p>Loading…</p>}</main>
}`)
write(path.join(next, 'app/about/page.jsx'), `export default () => <main><h1>About</h1><p>${article}</p></main>`)
run(next, 'next', 'build')
built('script-filled', 'next-client-only', path.join(next, 'out/index.html'))
built('script-filled', 'next-effect', path.join(next, 'out/effect.html'))
built('complete', 'next-static', path.join(next, 'out/about.html'))
built('complete', 'next-404', path.join(next, 'out/404.html'))

const astro = path.join(work, 'astro')
write(path.join(astro, 'package.json'), '{"private": true, "type": "module"}')
write(path.join(astro, 'astro.config.mjs'), `import preact from '@astrojs/preact'; export default { integrations: [preact()] }`)
write(path.join(astro, 'src/Chart.jsx'), `export default () => <p>${article}</p>`)
for (const [name, use] of [['index', 'client:only="preact"'], ['hydrated', 'client:load']]) {
  write(path.join(astro, `src/pages/${name}.astro`), `---
import Chart from '../Chart.jsx'
---
<html lang="en"><head><title>Levels</title></head><body><nav><a href="/">Home</a></nav><main><h1>Levels of today</h1><Chart ${use} /></main></body></html>`)
}
run(astro, 'astro', 'build')
built('script-filled', 'astro-client-only', path.join(astro, 'dist/index.html'))
built('complete', 'astro-hydrated', path.join(astro, 'dist/hydrated/index.html'))

const nuxt = path.join(work, 'nuxt')
write(path.join(nuxt, 'package.json'), '{"private": true, "type": "module"}')
write(path.join(nuxt, 'nuxt.config.ts'), `export default { ssr: false, compatibilityDate: '2026-01-01' }`)
write(path.join(nuxt, 'app/app.vue'), `<template><main><h1>Levels</h1><p>${article}</p></main></template>`)
run(nuxt, 'nuxi', 'generate')
built('script-filled', 'nuxt-client', path.join(nuxt, '.output/public/index.html'))
rmSync(work, { recursive: true, force: true })
