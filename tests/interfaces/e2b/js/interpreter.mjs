// The code interpreter as npm has it.
import assert from 'node:assert/strict'
import { NotFoundError, SandboxError, TimeoutError } from 'e2b'
import { Sandbox } from '@e2b/code-interpreter'
import { refused } from './tools.mjs'

const box = await Sandbox.create({ timeoutMs: 300_000 })
const run = (code, options = {}) => box.runCode(code, { timeoutMs: 30_000, ...options })
const said = (done) => done.logs.stdout.join('')

export const scenarios = {
  'a cell has a result and remembers': async () => {
    await run('x = 41')
    const done = await run('import sys; print("out"); print("err", file=sys.stderr); x + 1')
    assert.deepEqual([done.text, done.logs.stdout, done.logs.stderr], ['42', ['out\n'], ['err\n']])
    assert.equal(typeof done.executionCount, 'number')
  },

  'what happens is heard as it comes': async () => {
    const heard = []
    const at = (name) => (what) => { heard.push([name, what, Date.now()]) }
    const done = await run('import sys, time\nprint(1, flush=True); time.sleep(0.5)\nprint(2, file=sys.stderr)\n1 / 0', {
      onStdout: at('stdout'), onStderr: at('stderr'), onResult: at('result'), onError: at('error'),
    })
    assert.deepEqual(heard.map(([name]) => name), ['stdout', 'stderr', 'error'])
    assert.deepEqual([heard[0][1].line, heard[1][1].line], ['1\n', '2\n'])
    assert.ok(heard[1][2] - heard[0][2] > 300)
    assert.equal(heard[2][1].name, done.error.name)
    const results = []
    await run('6 * 7', { onResult: (each) => { results.push(each.text) } })
    assert.deepEqual(results, ['42'])
  },

  'results are rich': async () => {
    const shown = "display(HTML('<b>bold</b>')); display(JSON({'a': [1]})); display(Markdown('# t'))"
    const { results } = await run(`from IPython.display import display, HTML, JSON, Markdown\n${shown}`)
    assert.equal(results[0].html, '<b>bold</b>')
    assert.deepEqual(results[1].json, { a: [1] })
    assert.equal(results[2].markdown, '# t')
    const plot = await run('import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4]); plt.show()')
    const picture = plot.results.find((each) => each.png)
    assert.equal(Buffer.from(picture.png, 'base64').subarray(1, 4).toString(), 'PNG')
    assert.equal(picture.chart.type, 'line')
    assert.deepEqual(picture.chart.elements[0].points, [[1, 3], [2, 4]])
    assert.deepEqual([picture.chart.title, picture.chart.x_label], [null, null])
    const saved = "from PIL import Image\nImage.new('RGB', (2, 2)).save('/tmp/saved.png')"
    assert.equal(typeof (await run(saved)).results[0].png, 'string')
    const frame = (await run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")).results[0]
    assert.match(frame.html, /<table/)
    assert.deepEqual(frame.data, { a: [1, 2] })
  },

  'an error has a name and a traceback': async () => {
    const { error } = await run('def divide(): return 1 / 0\ndivide()')
    assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero'])
    const told = error.traceback.replace(/\x1b\[[\d;]*m/g, '')
    assert.match(told, /def divide\(\): return 1 \/ 0/)
    assert.match(told, /ZeroDivisionError: division by zero/)
    const thrown = (await run("function f() { throw new TypeError('no') }\nf()", { language: 'javascript' })).error
    assert.deepEqual([thrown.name, thrown.value], ['TypeError', 'no'])
    assert.match(thrown.traceback, /TypeError: no\n.*at f /)
  },

  'a chart has rounded angles and filled boxes': async () => {
    const chart = async (drawing) => {
      const code = `import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\n${drawing}\nplt.show()`
      return (await run(code)).results.find((each) => each.png).chart
    }
    const pie = await chart("ax.pie([90, 10], labels=['no', 'yes'], startangle=90)")
    assert.deepEqual(pie.elements.map((each) => each.angle), [324, 36])
    const boxes = await chart("ax.boxplot([[95, 89, 76, 91, 84, 87]], labels=['B'], patch_artist=True)")
    assert.equal(boxes.type, 'box_and_whisker')
    assert.deepEqual(boxes.elements, [{
      label: 'B', min: 84, first_quartile: 84.75, median: 88, third_quartile: 90.5, max: 95, outliers: [76],
    }])
  },

  'default contexts are there and a directory that is missing leaves none': async () => {
    const before = await box.listCodeContexts()
    assert.deepEqual(before.slice(0, 2).map((each) => each.language), ['python', 'javascript'])
    await refused(box.createCodeContext({ cwd: '/nowhere' }), SandboxError, /Directory \/nowhere does not exist/)
    assert.deepEqual(await box.listCodeContexts(), before)
  },

  'contexts are apart and are restarted and removed': async () => {
    const context = await box.createCodeContext({ cwd: '/tmp', language: 'python' })
    await run("where = 'inside'", { context })
    assert.equal((await run('import os; os.getcwd()', { context })).text, '/tmp')
    assert.equal((await run('where')).error.name, 'NameError')
    assert.ok((await box.listCodeContexts()).some((each) => each.id === context.id))
    await box.restartCodeContext(context)
    assert.equal((await run('where', { context })).error.name, 'NameError')
    await box.removeCodeContext(context.id)
    assert.ok(!(await box.listCodeContexts()).some((each) => each.id === context.id))
    await assert.rejects(run('1', { context }), NotFoundError)
  },

  'javascript remembers and awaits': async () => {
    const context = await box.createCodeContext({ language: 'javascript', cwd: '/tmp' })
    assert.equal((await run('const a = 40; process.cwd()', { context })).text, '/tmp')
    const done = await run('console.log(await Promise.resolve(a + 2)); ({ b: [1] })', { context })
    assert.equal(said(done), '42\n')
    assert.deepEqual(done.results[0].json, { b: [1] })
    await assert.rejects(run('while (true) {}', { context, timeoutMs: 2000 }), TimeoutError)
    assert.equal((await run('a', { context })).text, '40')
  },

  'javascript imports and typescript has types': async () => {
    assert.equal((await run("import path from 'path'\npath.join('a', 'b')", { language: 'js' })).text, 'a/b')
    const typed = 'function less(x: number, y: number): number { return x - y }\nless(1, 2)'
    assert.equal((await run(typed, { language: 'ts' })).text, '-1')
    await refused(run('1', { language: 'r' }), SandboxError, /no kernel for r\. Use python, javascript, typescript, bash/)
  },

  'bash remembers and fails': async () => {
    await run('v=kept; cd /etc', { language: 'bash' })
    assert.equal(said(await run('echo $v; pwd', { language: 'bash' })), 'kept\n/etc\n')
    const failed = await run('ls /nowhere', { language: 'bash' })
    assert.equal(failed.error.value, 'exit status 2')
    assert.match(failed.logs.stderr.join(''), /No such file/)
    assert.equal(said(await run('echo $V', { language: 'bash', envs: { V: '1' } })), '1\n')
  },

  'a sandbox that ends tells who follows a cell and who asks for one': async () => {
    const other = await Sandbox.create({ timeoutMs: 120_000 })
    try {
      const following = new Promise((begun) => {
        const slow = 'import time; print(1, flush=True); time.sleep(60)'
        const cell = other.runCode(slow, { onStdout: () => begun({ cell }), timeoutMs: 60_000 })
      })
      const { cell } = await following
      const ended = refused(cell, TimeoutError, /was killed while the request was in progress/)
      await other.kill()
      await ended
      await refused(other.runCode('1'), TimeoutError, /was not found.*likely due to sandbox timeout/)
    } finally {
      await other.kill()
    }
  },

  'variables outlive a pause': async () => {
    await run('n = 41')
    await box.pause()
    await box.connect({ timeoutMs: 120_000 })
    assert.equal((await run('n += 1; n')).text, '42')
  },
}

export const end = () => box.kill()
