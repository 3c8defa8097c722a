// One Node.js that runs cells. `isTyped` is set by what starts it: cells are TypeScript.
const repl = require('repl'), readline = require('readline'), fs = require('fs')
const util = require('util'), vm = require('vm'), { PassThrough } = require('stream')
const { stripTypeScriptTypes } = require('module')
const { AsyncLocalStorage } = require('async_hooks')
const quiet = new PassThrough(); quiet.resume()
const server = repl.start({
  prompt: '', input: new PassThrough(), output: quiet, terminal: false,
  useGlobal: true, breakEvalOnSigint: true,
})
// Cells are numbered: what an earlier one has left behind, such as a timer, is not the open one's.
let cells = 0, open = 0
const within = new AsyncLocalStorage()
// What is printed is passed on before the call returns: a stream of Node's that is interrupted
// within never writes again, and one that nobody reads fast enough would be far behind its cell.
const pause = new Int32Array(new SharedArrayBuffer(4))
const written = (fd) => (data, encoding, then) => {
  const kind = typeof encoding === 'string' ? encoding : 'utf8'
  const bytes = typeof data === 'string' ? Buffer.from(data, kind) : data
  for (let at = 0; at < bytes.length;) {
    try { at += fs.writeSync(fd, bytes, at) } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      Atomics.wait(pause, 0, 0, 1)
    }
  }
  const told = typeof encoding === 'function' ? encoding : then
  if (told) process.nextTick(told)
  return true
}
process.stdout.write = written(1)
process.stderr.write = written(2)
// Errors outside of a cell, such as in a timer, have no other listener.
const tell = (cell, said) => {
  if (cell !== open) return process.stderr.write(said.error ? said.error.stack + '\n' : '')
  open = 0
  fs.writeSync(3, JSON.stringify(said) + '\n')
}
const failed = (cell, error) => tell(cell, { error: {
  name: (error && error.name) || 'Error', message: String((error && error.message) || error),
  stack: String((error && error.stack) || error) } })
const thrown = (error) => failed(within.getStore(), error)
// Until Node 25 what a cell throws is an event of this, and the callback is not called.
if (server._domain) server._domain.on('error', thrown)
// The REPL gives up a cell that awaits; what comes of it later is no other cell's.
const interrupted = () => { if (open) server.emit('SIGINT') }
process.on('SIGINT', interrupted)
process.on('unhandledRejection', thrown)

// Node warns at the first use that dropping types is experimental. That is no cell's output.
if (isTyped && stripTypeScriptTypes) {
  const warn = process.emitWarning
  process.emitWarning = () => {}
  stripTypeScriptTypes('')
  process.emitWarning = warn
}
const withoutTypes = (code) => {
  if (!stripTypeScriptTypes) {
    throw new Error(`Node.js ${process.version} cannot run TypeScript: install 22.13 or newer`)
  }
  try { return stripTypeScriptTypes(code) } catch (error) {
    // Enums, namespaces and parameter properties become code.
    if (error.code === 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') {
      return stripTypeScriptTypes(code, { mode: 'transform' })
    }
    // The REPL takes such a cell as an object. The type stripper takes it as a block.
    if (!/^\s*{/.test(code)) throw error
    try { return stripTypeScriptTypes(`(${code}\n)`) } catch { throw error }
  }
}

// A REPL has no import declarations. V8 finds them, so that no second parser is needed here. They
// become dynamic imports, which run before the rest of the cell, as in a module.
const space = String.raw`(?:\s|/\*[^]*?\*/|//.*)*`
const name = String.raw`[\p{ID_Start}$_][\p{ID_Continue}$]*`
const declaration = new RegExp(
  `import${space}(?:(?:(?<main>${name})${space},?${space})?` +
  `(?:\\*${space}as${space}(?<all>${name})|\\{(?<some>[^}]*)\\})?${space}from${space})?` +
  String.raw`(?<from>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')` +
  `(?:${space}with${space}(?<attributes>\\{[^}]*\\}))?[ \\t]*;?`, 'uy')
const placeOfImport = (code) => {
  try { new vm.Script(`async () => {\n${code}\n}`) } catch (error) {
    if (!error.message.startsWith('Cannot use import statement')) return -1
    // The stack begins with the number of the line, the line itself, and marks under the place.
    const [first, , marks] = error.stack.split('\n')
    const line = first.match(/:(\d+)$/)?.[1] - 2
    const ends = [...code.matchAll(/[\n\u2028\u2029]/g)].map((end) => end.index + 1)
    return (line ? ends[line - 1] : 0) + marks.indexOf('^')
  }
  return -1
}
const dynamic = ({ main, all, some = '', from, attributes }) => {
  const names = some.replace(/\/\*[^]*?\*\/|\/\/.*/g, '').replace(/\s+as\s+/g, ': ')
  const pattern = `{ ${main ? `default: ${main}, ` : ''}${names} }`
  const source = `await import(${from}${attributes ? `, { with: ${attributes} }` : ''})`
  // With `var` a cell can run twice.
  return (all ? [all, ...main ? [pattern] : []] : [pattern])
    .map((each) => `var ${each} = ${source};`).join(' ')
}
const prepared = (cell) => {
  let imports = '', code = isTyped ? withoutTypes(cell) : cell
  code = code.replace(/\r\n?/g, '\n')  // as V8 reads it
  for (;;) {
    declaration.lastIndex = placeOfImport(code)
    const found = declaration.lastIndex < 0 ? null : declaration.exec(code)
    if (!found) return { imports, code }
    imports += dynamic(found.groups)
    const blank = found[0].replace(/[^\n]/g, ' ')
    code = code.slice(0, found.index) + blank + code.slice(found.index + blank.length)
  }
}
const run = (cell, code, ended) => {
  if (cell !== open) return
  // Code that does not await is stopped by a handler of the REPL's own. One of ours would be taken
  // away for that time after the REPL has set its own, and with it the REPL's: an interrupt would
  // then end the process.
  process.off('SIGINT', interrupted)
  try { within.run(cell, () => server.eval(code, server.context, 'cell', ended)) }
  finally { process.on('SIGINT', interrupted) }
}
const plain = (value) => {
  try { return value && typeof value === 'object' ? JSON.parse(JSON.stringify(value)) : undefined }
  catch { return undefined }
}
readline.createInterface({ input: process.stdin }).on('line', (word) => {
  const cell = open = ++cells
  const ended = (error, value) => {
    if (error) return failed(cell, error instanceof repl.Recoverable ? error.err : error)
    tell(cell, value === undefined ? {} : { text: util.inspect(value), json: plain(value) })
  }
  let source
  try { source = prepared(Buffer.from(word, 'base64').toString()) } catch (error) {
    return failed(cell, error)
  }
  // Apart from its imports, a cell that does not await can be interrupted.
  const rest = () => run(cell, source.code, ended)
  if (!source.imports) return rest()
  run(cell, source.imports, (error) => error ? ended(error) : rest())
})
