"""What a rank's kernel publishes, as the views get it."""

PNG = "iVBORw0KGgo="


def stream(text, name="stdout"):
    return {"msg_type": "stream", "content": {"name": name, "text": text}}


def stderr(text):
    return stream(text, "stderr")


def value(text):
    """The value of the last line."""
    return {"msg_type": "execute_result", "content": {"data": {"text/plain": text}, "metadata": {}}}


def display(display_id=None, *, update=False, **data):
    """Something displayed; `text_html="<b>"` stands for the type text/html."""
    content = {"data": {kind.replace("_", "/"): text for kind, text in data.items()}, "metadata": {}}
    if display_id is not None:
        content["transient"] = {"display_id": display_id}
    return {"msg_type": "update_display_data" if update else "display_data", "content": content}


def figure(png=PNG):
    return display(image_png=png, text_plain="<Figure size 640x480 with 1 Axes>")


def clear():
    return {"msg_type": "clear_output", "content": {"wait": False}}
