// What the scenarios have in common. Each of them ends what it made.
import assert from 'node:assert/strict'
import http from 'node:http'
import net from 'node:net'
import { Sandbox } from 'e2b'

const apiUrl = process.env.E2B_API_URL

export async function within(options, work) {
  const box = await Sandbox.create(options)
  try {
    return await work(box)
  } finally {
    await Sandbox.kill(box.sandboxId)
  }
}

export async function eventually(check, what, seconds = 15) {
  const until = Date.now() + seconds * 1000
  while (!(await check())) {
    assert.ok(Date.now() < until, `not in time: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

// By its name, without asking anyone where that is.
export function visit(host, headers = {}) {
  const { hostname, port } = new URL(apiUrl)
  return new Promise((resolve, reject) => {
    const request = http.get({ hostname, port, path: '/', headers: { host, ...headers } }, (answer) => {
      let body = ''
      answer.on('data', (piece) => (body += piece))
      answer.on('end', () => resolve({ status: answer.statusCode, body }))
    })
    request.on('error', reject)
  })
}

export async function refused(attempt, kind, words) {
  await assert.rejects(attempt, (error) => {
    assert.ok(error instanceof kind, `${error.name} is no ${kind.name}: ${error.message}`)
    assert.match(error.message, words)
    return true
  })
}

// A way to the server that can be cut, after which nobody answers there.
export async function detour() {
  const { hostname, port } = new URL(apiUrl)
  const sockets = new Set()
  const way = net.createServer((near) => {
    const far = net.connect(Number(port), hostname)
    near.pipe(far)
    far.pipe(near)
    for (const each of [near, far]) {
      sockets.add(each)
      each.on('error', () => {})
    }
  })
  await new Promise((resolve) => way.listen(0, '127.0.0.1', resolve))
  const cut = () => {
    way.close()
    for (const each of sockets) each.destroy()
  }
  return { url: `http://127.0.0.1:${way.address().port}`, cut }
}
