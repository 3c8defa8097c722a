// Rules about hosts, against servers of the test's own behind the names.
import assert from 'node:assert/strict'
import { Sandbox, Secret } from 'e2b'

const key = 'sk-of-the-javascript-client-0123'
const rules = { '*.example.org': [{ transform: { headers: { 'X-Key': key, 'X-Of': 'me' } } }] }
const closed = { denyOut: ({ allTraffic }) => [allTraffic] }
const box = await Sandbox.create({ network: { ...closed, allowOut: ({ rules }) => [...rules.keys()], rules } })
try {
  const ask = async () => (await box.commands.run('curl -sSk -m 8 https://api.example.org/echo || true')).stdout
  const said = await ask()
  assert.match(said, /'x-of': 'me'/)
  assert.match(said, /'x-key': 'pdk-/)
  assert.ok(!said.includes(key))
  const told = (await box.getInfo()).network
  assert.deepEqual(told.rules['*.example.org'], [{ transform: { headers: { 'X-Key': '***', 'X-Of': 'me' } } }])
  assert.deepEqual([told.allowOut, told.denyOut], [['*.example.org'], ['0.0.0.0/0']])

  const name = `js-${Date.now()}`
  await Secret.create(name, 'filled-in-by-javascript', { metadata: { for: 'rules' } })
  const filled = { 'api.example.org': [{ transform: { headers: { Authorization: `Bearer ${Secret.fill(name)}` } } }] }
  await box.updateNetwork({ ...closed, allowOut: ['api.example.org'], rules: filled })
  assert.match(await ask(), /'authorization': 'Bearer pdk-/)
  assert.deepEqual((await Secret.getInfo(name)).metadata, { for: 'rules' })
  await Secret.destroy(name)

  await box.updateNetwork({ denyOut: [process.env.DENIED] })
  assert.ok(!(await ask()).includes('GET /echo'))
  await box.updateNetwork({ allowInternetAccess: true, denyOut: [process.env.DENIED], allowOut: [process.env.ADDRESS] })
  assert.match(await ask(), /GET \/echo/)
} finally {
  await box.kill()
}
console.log('ruled')
process.exit(0)
