"""A service in a separate process, with a fake web whose pages are slow, to be killed while a job runs.

Arguments: the database and a file to which every requested page is appended before it is answered.
"""

import asyncio
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import fake_web

from weblake_service.config import ServiceConfig
from weblake_service.server import LocalService

log = open(sys.argv[2], "a", buffering=1)  # noqa: SIM115


class SlowWeb(fake_web.FakeWeb):
    async def scrape(self, url, options):
        log.write(url + "\n")
        await asyncio.sleep(0.01)
        await asyncio.to_thread(time.sleep, 0.005)
        if url == "http://site.test/":
            self.links[url] = [f"http://site.test/{n}" for n in range(60)]
        return await super().scrape(url, options)


config = ServiceConfig(testing=True)
service = LocalService(sys.argv[1], keys="test-key", config=config, web=lambda config: SlowWeb()).start()
print(json.dumps({"url": service.url}), flush=True)
sys.stdin.readline()
# The interpreter shuts down here, with jobs running and no stop(); it waits for this thread, and accepts no new ones.
ThreadPoolExecutor().submit(time.sleep, 0.5)
