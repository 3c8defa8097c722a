// Commands, terminals, files and git in a sandbox.
import assert from 'node:assert/strict'
import { CommandExitError, FileNotFoundError, FileType, NotFoundError, TimeoutError } from 'e2b'
import { eventually, within } from './tools.mjs'

export const scenarios = {
  'commands run in front and behind': async () => {
    await within({}, async (box) => {
      await assert.rejects(box.commands.run('echo why >&2; exit 3'), (error) => {
        assert.ok(error instanceof CommandExitError)
        assert.deepEqual([error.exitCode, error.stderr], [3, 'why\n'])
        return true
      })
      const behind = await box.commands.run('cat', { background: true, stdin: true })
      await box.commands.sendStdin(behind.pid, 'said')
      const pids = (await box.commands.list()).map((each) => each.pid)
      assert.ok(pids.includes(behind.pid))
      let heard = ''
      const again = await box.commands.connect(behind.pid, { onStdout: (text) => { heard += text } })
      await box.commands.sendStdin(behind.pid, ' more')
      await box.commands.closeStdin(behind.pid)
      assert.equal((await again.wait()).exitCode, 0)
      assert.ok(heard.endsWith(' more'))
      const asleep = await box.commands.run('sleep 60', { background: true })
      assert.equal(await asleep.kill(), true)
      await assert.rejects(asleep.wait(), CommandExitError)
      await assert.rejects(box.commands.run('sleep 30', { timeoutMs: 1000 }), TimeoutError)
      const lines = (await box.commands.run('seq 1 100000')).stdout.split('\n')
      assert.equal(lines.length, 100001)
    })
  },

  'commands are heard as they come and run as asked': async () => {
    await within({}, async (box) => {
      const heard = []
      const done = await box.commands.run('echo out; sleep 0.3; echo err >&2', {
        onStdout: (text) => { heard.push(['out', text, Date.now()]) },
        onStderr: (text) => { heard.push(['err', text, Date.now()]) },
      })
      assert.deepEqual([done.stdout, done.stderr, done.exitCode], ['out\n', 'err\n', 0])
      assert.deepEqual(heard.map(([name, text]) => [name, text]), [['out', 'out\n'], ['err', 'err\n']])
      assert.ok(heard[1][2] - heard[0][2] > 150)
      const asked = { user: 'root', cwd: '/etc', envs: { A: '1' } }
      assert.equal((await box.commands.run('id -un; pwd; echo $A', asked)).stdout, 'root\n/etc\n1\n')
    })
  },

  'who disconnects leaves the command running': async () => {
    await within({}, async (box) => {
      const behind = await box.commands.run('sleep 60', { background: true, timeoutMs: 0 })
      await behind.disconnect()
      assert.ok((await box.commands.list()).some((each) => each.pid === behind.pid))
      assert.equal(await box.commands.kill(behind.pid), true)
      await eventually(async () => !(await box.commands.kill(behind.pid)), 'its end')
      await assert.rejects(box.commands.connect(2_000_000), NotFoundError)
    })
  },

  'terminals are terminals': async () => {
    await within({}, async (box) => {
      let seen = ''
      const decoder = new TextDecoder()
      const onData = (data) => { seen += decoder.decode(data, { stream: true }) }
      const terminal = await box.pty.create({ cols: 101, rows: 33, onData })
      const type = (text) => box.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
      await type('stty size\n')
      await eventually(() => seen.includes('33 101'), 'the size')
      await box.pty.resize(terminal.pid, { cols: 120, rows: 40 })
      await type('stty size; exit\n')
      await terminal.wait()
      assert.ok(seen.includes('40 120'))
    })
  },

  'terminals are found again and killed': async () => {
    await within({}, async (box) => {
      let seen = ''
      const terminal = await box.pty.create({ cols: 80, rows: 24, onData: () => {}, timeoutMs: 0 })
      await terminal.disconnect()
      const onData = (data) => { seen += new TextDecoder().decode(data) }
      const again = await box.pty.connect(terminal.pid, { onData, timeoutMs: 0 })
      await box.pty.sendInput(terminal.pid, new TextEncoder().encode('echo st$((1))ill\n'))
      await eventually(() => seen.includes('st1ill'), 'what was typed')
      assert.equal(await box.pty.kill(terminal.pid), true)
      await assert.rejects(again.wait(), CommandExitError)
    })
  },

  'files are written read listed and watched': async () => {
    await within({}, async (box) => {
      await box.files.write('a.txt', 'grüße')
      assert.equal(await box.files.read('a.txt'), 'grüße')
      const bytes = new Uint8Array(3 << 20).map((_, index) => index % 251)
      await box.files.write('b.bin', bytes.buffer)
      assert.deepEqual(Buffer.from(await box.files.read('b.bin', { format: 'bytes' })), Buffer.from(bytes))
      await box.files.write([{ path: 'd/1', data: '1' }, { path: 'd/2', data: '2' }])
      assert.deepEqual((await box.files.list('d')).map((each) => each.name), ['1', '2'])
      await box.files.write('empty', '')
      assert.equal(await box.files.read('empty'), '')
      assert.equal(await box.files.makeDir('d'), false)
      await box.files.rename('d/1', 'e/1')
      assert.equal(await box.files.exists('d/1'), false)
      await box.files.remove('e')
      await assert.rejects(box.files.read('e/1'), FileNotFoundError)
      const heard = []
      const watch = await box.files.watchDir('d', (event) => heard.push(`${event.name} ${event.type}`))
      await box.files.write('d/new', 'x')
      await eventually(() => heard.includes('new write'), 'the event of a write')
      assert.deepEqual(heard.slice(0, 3), ['new create', 'new chmod', 'new write'])
      await watch.stop()
    })
  },

  'directories are looked into and told of in depth': async () => {
    await within({}, async (box) => {
      assert.equal(await box.files.makeDir('d/e'), true)
      const made = await box.files.writeFiles([{ path: 'd/e/f', data: 'x' }, { path: 'd/g', data: new Blob(['yz']) }])
      assert.deepEqual(made.map((each) => each.path), ['/home/user/d/e/f', '/home/user/d/g'])
      const deep = (await box.files.list('d', { depth: 2 })).map((each) => each.path)
      assert.deepEqual(deep, ['/home/user/d/e', '/home/user/d/e/f', '/home/user/d/g'])
      const info = await box.files.getInfo('d/g')
      assert.deepEqual([info.type, info.size, info.owner, info.permissions], [FileType.FILE, 2, 'user', '-rw-r--r--'])
      assert.equal(await (await box.files.read('d/g', { format: 'blob' })).text(), 'yz')
      await box.files.write('packed', 'x'.repeat(9999), { gzip: true, metadata: { kind: 'long' } })
      assert.equal(await box.files.read('packed', { gzip: true }), 'x'.repeat(9999))
      assert.deepEqual((await box.files.getInfo('packed')).metadata, { kind: 'long' })
      await box.files.write('/root/s', 's', { user: 'root' })
      assert.equal(await box.files.read('/root/s', { user: 'root' }), 's')
      const heard = []
      const watch = await box.files.watchDir('d', (event) => { heard.push(`${event.name} ${event.type}`) }, { recursive: true })
      await box.files.write('d/e/new', 'x')
      await box.files.remove('d/g')
      await eventually(() => heard.includes('e/new write') && heard.includes('g remove'), `events: ${heard}`)
      await watch.stop()
    })
  },

  'a large file passes as a stream': async () => {
    await within({}, async (box) => {
      const piece = new Uint8Array(1 << 20).fill(7)
      let left = 128
      const data = new ReadableStream({
        pull(controller) {
          if (left-- > 0) controller.enqueue(piece)
          else controller.close()
        },
      })
      await box.files.write('large', data, { useOctetStream: true, requestTimeoutMs: 40_000 })
      assert.equal((await box.files.getInfo('large')).size, 128 << 20)
      let seen = 0
      for await (const some of await box.files.read('large', { format: 'stream', requestTimeoutMs: 40_000 })) seen += some.length
      assert.equal(seen, 128 << 20)
    })
  },

  'signed addresses need no key': async () => {
    await within({}, async (box) => {
      await box.files.write('a.txt', 'signed')
      const url = await box.downloadUrl('a.txt', { useSignatureExpiration: 60 })
      assert.equal(await (await fetch(url)).text(), 'signed')
      assert.equal((await fetch(url.replace('a.txt', 'b.txt'))).status, 401)
      const late = await box.downloadUrl('a.txt', { useSignatureExpiration: -10 })
      const told = await fetch(late)
      assert.deepEqual([told.status, (await told.json()).message], [401, 'signature is already expired'])
      const up = await box.uploadUrl('up.txt', { useSignatureExpiration: 60 })
      const form = new FormData()
      form.append('file', new Blob(['uploaded']), 'up.txt')
      assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200)
      assert.equal(await box.files.read('up.txt'), 'uploaded')
    })
  },

  'git works': async () => {
    await within({}, async (box) => {
      await box.git.init('/home/user/r', { initialBranch: 'main' })
      await box.git.configureUser('Me', 'me@example.org', { scope: 'local', path: '/home/user/r' })
      await box.files.write('r/a', 'a')
      await box.git.add('/home/user/r')
      await box.git.commit('/home/user/r', 'first')
      assert.equal((await box.git.status('/home/user/r')).isClean, true)
    })
  },

  'git works with branches and remotes': async () => {
    await within({}, async (box) => {
      const repo = '/home/user/work', other = '/home/user/other', local = { scope: 'local', path: repo }
      await box.commands.run('git init -q --bare -b main /home/user/far.git')
      await box.git.init(repo, { initialBranch: 'main' })
      await box.git.configureUser('Me', 'me@example.org', local)
      await box.git.setConfig('pull.rebase', 'false', local)
      assert.equal(await box.git.getConfig('pull.rebase', local), 'false')
      await box.git.remoteAdd(repo, 'origin', '/home/user/far.git')
      assert.equal(await box.git.remoteGet(repo, 'origin'), '/home/user/far.git')
      await box.files.write('work/a', 'one')
      await box.git.add(repo)
      await box.git.commit(repo, 'first')
      await box.git.push(repo, { remote: 'origin', branch: 'main' })
      await box.git.clone('/home/user/far.git', { path: other })
      await box.git.configureUser('You', 'you@example.org', { ...local, path: other })
      await box.files.write('other/a', 'two')
      await box.git.add(other)
      await box.git.commit(other, 'second')
      await box.git.push(other)
      await box.git.pull(repo)
      assert.equal(await box.files.read('work/a'), 'two')
      await box.git.createBranch(repo, 'side')
      assert.deepEqual(new Set((await box.git.branches(repo)).branches), new Set(['main', 'side']))
      await box.git.checkoutBranch(repo, 'main')
      await box.git.deleteBranch(repo, 'side')
      await box.files.write('work/a', 'spoilt')
      await box.git.restore(repo, { paths: ['a'] })
      assert.equal(await box.files.read('work/a'), 'two')
      await box.git.reset(repo, { mode: 'hard', target: 'HEAD~1' })
      assert.equal(await box.files.read('work/a'), 'one')
    })
  },
}
