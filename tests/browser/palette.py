"""Pictures of pages in few bytes: as a PNG with a palette, a quarter of the size of another.

The browser that takes a picture also counts its colours. Pages have few of them: the edges of
letters are the only ones that are not kept exactly.
"""

import base64
import struct
import zlib

INDEXED = """
const [picture, most, done] = arguments
const bytes = Uint8Array.from(atob(picture), (one) => one.charCodeAt(0))
createImageBitmap(new Blob([bytes], {type: 'image/png'})).then((bitmap) => {
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height)
  const context = canvas.getContext('2d')
  context.drawImage(bitmap, 0, 0)
  const data = context.getImageData(0, 0, bitmap.width, bitmap.height).data
  const counts = new Map()
  const colours = new Uint32Array(data.length / 4)
  for (let at = 0; at < colours.length; at++) {
    const colour = data[4 * at] << 16 | data[4 * at + 1] << 8 | data[4 * at + 2]
    colours[at] = colour
    counts.set(colour, (counts.get(colour) || 0) + 1)
  }
  const sorted = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a))
  const palette = sorted.slice(0, most)
  const parts = (colour) => [colour >> 16, colour >> 8 & 255, colour & 255]
  const distance = (a, b) => parts(a).reduce((sum, one, at) => sum + (one - parts(b)[at]) ** 2, 0)
  const places = new Map(palette.map((colour, place) => [colour, place]))
  for (const colour of sorted.slice(most)) {
    let nearest = 0
    for (let place = 1; place < palette.length; place++) {
      if (distance(palette[place], colour) < distance(palette[nearest], colour)) nearest = place
    }
    places.set(colour, nearest)
  }
  let told = ''
  for (const colour of colours) told += String.fromCharCode(places.get(colour))
  done([bitmap.width, bitmap.height, palette, btoa(told)])
})
"""
COLOURS = 256


def with_palette(driver, picture):
    """A PNG in base64, as the bytes of a smaller one. The browser leaves its page for it."""
    driver.get("about:blank")  # the policy of a page lets nobody look at pictures of other origins
    width, height, palette, told = driver.execute_async_script(INDEXED, picture, COLOURS)
    pixels = base64.b64decode(told)
    rows = (b"\0" + pixels[at : at + width] for at in range(0, len(pixels), width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(colour.to_bytes(3, "big") for colour in palette)
    parts = (
        (b"IHDR", header),
        (b"PLTE", colours),
        (b"IDAT", zlib.compress(b"".join(rows), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
