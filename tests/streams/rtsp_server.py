"""An RTSP server that plays a video, for the tests; it runs with Debian's Python and GStreamer.

/usr/bin/python3 rtsp_server.py VIDEO.mp4 [USER PASSWORD]    prints the port when it listens
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402


def main(video, *login):
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")  # any free port
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(f'( filesrc location="{video}" ! qtdemux ! rtph264pay name=pay0 pt=96 )')
    if login:
        protect(server, factory, *login)
    server.get_mount_points().add_factory("/door", factory)
    server.attach(None)
    print(server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


def protect(server, factory, user, password):
    """Let only a client with this name and password read the stream."""
    access = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "viewer")
    basic = GstRtspServer.RTSPAuth.make_basic(user, password)
    access.add_basic(basic, token)
    server.set_auth(access)
    role = Gst.Structure.new_empty("viewer")
    role.set_value("media.factory.access", True)
    role.set_value("media.factory.construct", True)
    permissions = GstRtspServer.RTSPPermissions()
    permissions.add_role_from_structure(role)
    factory.set_permissions(permissions)


if __name__ == "__main__":
    main(*sys.argv[1:])
