"""The layers of a body in painting order: walls first, then contents, then bones."""

from __future__ import annotations

import numpy as np

from . import fields as f
from .anatomy import SPLEEN, Anatomy, Layer


def all_layers(an: Anatomy, g: f.Grid) -> list[Layer]:
    """Everything in and around the body, in painting order."""
    spleen_part = g.part(an.spleen_centre, (85, 95, 95))
    spleen = an.spleen(spleen_part) if spleen_part else None
    return [
        *surroundings(an, g),
        *walls(an, g),
        *chest(an, g),
        *bowel(an, g, spleen_part, spleen),
        *upper_abdomen(an, g, spleen_part, spleen),
        *retroperitoneum(an, g),
        *bones(an, g),
    ]


def surroundings(an: Anatomy, g: f.Grid) -> list[Layer]:
    """Table and clothes. A thin sheet is painted as its outer side, then as air from its inner side on."""
    p, body = an.p, g.shared["body"]
    y, x = np.meshgrid(g.y, g.x)
    top = -an.b - p["table_gap"] - 6 + p["table_curvature"] * x**2  # patients lie on the middle of the table
    flat = np.broadcast_to((y - top).astype(np.float32), g.shape)
    side = np.broadcast_to((np.abs(x) - 215).astype(np.float32), g.shape)
    out = [
        Layer("table", np.maximum(flat, side), p["table_hu"], steep_as=flat),
        Layer("table", np.maximum(flat + 2.2, side + 2), -860.0, steep_as=flat),  # foam
        Layer("table", np.maximum(flat + 30, side + 2), p["table_hu"], steep_as=flat),
        Layer("table", np.maximum(flat + 32.2, side + 2), -1000.0, steep_as=flat),
    ]
    gap = p["clothes_gap"] * (0.75 + 0.35 * an.waves("clothes", 45)(g)) + 3 * an.waves("folds", 18)(g)
    gap = np.clip(gap, 0.3, None).astype(np.float32)
    front = g.Y > -0.72 * an.b
    thickness = np.where(front, np.float32(1.5), np.float32(0))
    outer = body - gap - thickness
    out += [
        Layer("clothes", outer, p["clothes_hu"], steep_as=outer),
        Layer("clothes", body - gap, -1000.0, steep_as=outer),
    ]
    return out


def walls(an: Anatomy, g: f.Grid) -> list[Layer]:
    p, body, ellipse, cavity = an.p, g.shared["body"], g.shared["ellipse"], g.shared["cavity"]
    muscle = p["spleen_hu"] + p["muscle_offset"]
    fine, coarse = an.waves("fine fat", 14)(g), an.waves("coarse fat", 40)(g)
    fat = (p["fat_hu"] + 5 * fine + 4 * coarse).astype(np.float32)
    w = p["wall_thickness"]
    # Between cavity and wall: the muscles of the back fill the room behind the ellipse on both sides of the spine.
    back = np.maximum(body + p["skin_thickness"] + p["fat_back"], g.Y - an.spine_y - 6)
    back = -f.rounded_union(-back, 0.5 * an.a - np.abs(g.X), 40)  # rounded edges
    back = f.rounded_union(back, np.maximum(ellipse - w, body + p["skin_thickness"] + 3), 16)
    # Fat between the layers of the side wall, and behind it below the chest.
    sheet = np.abs(ellipse - 0.62 * w + 1.6 * coarse) - 0.9 - 0.5 * fine
    sheet = np.maximum(sheet, -g.Y - 0.55 * an.b)
    line = np.maximum(np.abs(g.X) - 1.5, an.spine_y - g.Y)  # the white line between the straight muscles
    septum = np.abs(np.abs(g.X) - 0.21 * an.a - 2 * fine) - 0.8  # between the muscles of the back
    septum = np.maximum(np.maximum(septum, g.Y - an.spine_y + 8), body + 16)
    return [
        Layer("skin", body, 35.0, steep_as=body),
        Layer("fat", body + p["skin_thickness"], fat, steep_as=body),
        Layer("muscle", back, (muscle + 3 * fine).astype(np.float32)),
        Layer("fat", np.maximum(sheet, body + 9), p["fat_hu"] + 18),
        Layer("fat", np.maximum(line, body + 9), p["fat_hu"] + 30),
        Layer("fat", septum, p["fat_hu"] + 45),
        Layer("fat", cavity, fat + 3),
    ]


def chest(an: Anatomy, g: f.Grid) -> list[Layer]:
    p, above, cavity = an.p, g.shared["above"], g.shared["cavity"]
    part = g.part((0, 0, 200), (1000, 1000, 250))
    if part is None:
        return []
    above, cavity = part.shared["above"], part.shared["cavity"]
    fine = an.waves("lung", 11, 14)(part)
    heart = f.ellipsoid(part, (-18, an.cy + 0.40 * an.cb, p["diaphragm_left"] + 28), (52, 40, 46), f.turn(1, 25))
    middle = np.sqrt((part.X / 26) ** 2 + ((part.Y - an.cy) / (1.3 * an.cb)) ** 2) * 26 - 26
    middle = np.minimum(middle, heart - 5)
    lung = np.maximum(np.maximum(cavity + 1.5, above + 1.5), -middle)
    vessels = np.maximum(lung + 4, 1.25 - fine)
    blood = p["spleen_hu"] + p["blood_offset"]
    sheet = np.maximum(np.abs(above) - 1.6, cavity)
    esophagus = f.tube(part, [(-6, an.spine_y + 32, 400), (-10, an.spine_y + 36, p["diaphragm_left"] - 8)], [9, 9])
    return [
        Layer("diaphragm", sheet, p["spleen_hu"] + p["muscle_offset"], part.origin),
        Layer("lung", lung, (-850 + 18 * an.waves("lung tone", 60)(part)).astype(np.float32), part.origin),
        Layer("lung vessels", vessels, -250.0, part.origin),
        Layer("heart", np.maximum(heart, above + 1.5), blood - 4, part.origin),
        Layer("esophagus", np.maximum(esophagus, above + 1), p["spleen_hu"] + p["muscle_offset"], part.origin),
    ]


def bowel(an: Anatomy, g: f.Grid, spleen_part, spleen) -> list[Layer]:
    """Loops in front of the kidneys and below the stomach, with gas at the front of some of them."""
    p = an.p
    part = g.part((0, 0, -130), (1000, 1000, 150))
    if part is None:
        return []
    room = np.maximum(part.shared["cavity"] + 5, 6 - part.shared["above"])
    room = np.maximum(room, (an.spine_y + 48) - part.Y + 0.06 * np.abs(part.X))  # in front of spine and kidneys
    top = np.where(part.X < -20, np.float32(26), np.float32(-22)) + np.float32(an.uniform("bowel top", -20, 20))
    room = np.maximum(room, part.Z - top)
    loops = (
        an.waves("loops", 46, 14)(part) + np.float32(0.35) + np.float32(0.25) * an.waves("folds of the bowel", 17)(part)
    )
    wall = np.maximum(room, (0.15 - loops) * 11)
    content = np.maximum(room + 2.5, (0.5 - loops) * 11)
    x, y, cb = 0.78 * an.ca, an.cy, an.cb
    pouches = an.waves("pouches", 26)(part) * np.float32(2)
    colon = f.tube(
        part,
        an.vessel(
            [
                (x, y - 0.2 * cb, -230),
                (0.95 * x, y, -95),
                (0.4 * x, y + 0.66 * cb, -85),
                (-0.4 * x, y + 0.68 * cb, -70),
                (-0.9 * x, y + 0.25 * cb, an.uniform("flexure", -48, -12)),
                (-x, y - 0.1 * cb, -90),
                (-x, y - 0.2 * cb, -230),
            ],
            "colon",
            5,
        ),
        [25, 24, 20, 20, 20, 16, 15],
    )
    colon = np.maximum(colon + pouches, np.maximum(part.shared["cavity"] + 4, 5 - part.shared["above"]))
    if spleen is not None:  # the same margin in the whole: the part of the spleen is only a part of this grid
        colon = _carve(colon, part.origin, 2 - spleen, spleen_part.origin)
    wall, content = np.minimum(wall, colon), np.minimum(content, colon + 2.5)
    strands = np.maximum(
        np.maximum(part.shared["cavity"] + 5, 4 - part.shared["above"]), (1.35 - an.waves("strands", 19, 16)(part)) * 5
    )
    stool = an.waves("stool", 9, 14)(part)
    inside = p["spleen_hu"] * 0.3 + 12 + 14 * stool - 55 * np.clip(stool - 1, 0, None)
    gas = np.maximum(content + 1, (0.5 - an.waves("gas", 70)(part)) * 16 - 0.05 * (part.Y - an.cy))
    base = p["spleen_hu"] + p["muscle_offset"]
    return [
        Layer("mesenteric vessels", strands, base - 15, part.origin),
        Layer("bowel", wall, base, part.origin),
        Layer("bowel", content, inside.astype(np.float32), part.origin, steep_as=wall),
        Layer("bowel gas", gas, -930.0, part.origin),
    ]


def _carve(u, origin, v, other):
    """Maximum of ``u`` and ``v`` where the two parts of the grid overlap; ``u`` elsewhere."""
    mine, theirs = [], []
    for o, n, p, m in zip(origin, u.shape, other, v.shape):
        lo, hi = max(o, p), min(o + n, p + m)
        if lo >= hi:
            return u
        mine.append(slice(lo - o, hi - o))
        theirs.append(slice(lo - p, hi - p))
    u[tuple(mine)] = np.maximum(u[tuple(mine)], v[tuple(theirs)])
    return u


def upper_abdomen(an: Anatomy, g: f.Grid, spleen_part, spleen) -> list[Layer]:
    p, out = an.p, []
    hu = p["spleen_hu"]
    blood = hu + p["blood_offset"]

    part = g.part((0.45 * an.ca, an.cy, p["liver_z"]), (180, 150, 130))
    if part:
        liver = an.liver(part)
        out.append(
            Layer(
                "liver",
                liver,
                (hu + p["liver_offset"] + 2.5 * an.waves("liver tone", 30)(part)).astype(np.float32),
                part.origin,
            )
        )
        cx, cy, top = 22, an.spine_y + 46, p["diaphragm_right"] - 22
        trees = [
            [(cx, cy, top), (55, cy + 12, top - 14), (100, cy + 5, top - 40)],
            [(cx, cy, top), (40, cy + 34, top - 16), (62, cy + 62, top - 44)],
            [(cx, cy, top), (8, cy + 38, top - 14), (-14, cy + 58, top - 26)],
            [(14, cy + 14, -14), (44, cy + 20, -4), (74, cy + 30, 8), (98, cy + 34, 16)],
            [(44, cy + 20, -4), (74, cy - 6, -10), (104, cy - 16, -24)],
            [(14, cy + 14, -14), (6, cy + 44, 10), (-12, cy + 56, 14)],
        ]
        veins = np.min(
            [f.tube(part, an.vessel(t, f"vein {i}"), np.linspace(5.2, 2.2, len(t))) for i, t in enumerate(trees)],
            axis=0,
        )
        # Without contrast medium the vessels are darker than the liver.
        out.append(
            Layer(
                "liver veins",
                np.maximum(veins, liver + 3),
                min(blood, hu + p["liver_offset"] + 40) if p["blood_offset"] > 0 else hu + p["liver_offset"] - 14,
                part.origin,
            )
        )
        bladder = f.ellipsoid(
            part, (0.38 * an.ca, an.cy + 0.45 * an.cb, p["liver_z"] - 55), (15, 17, 26), f.turn(0, 25)
        )
        out.append(Layer("gallbladder", np.maximum(bladder, part.shared["cavity"] + 5), 10.0, part.origin))

    part = g.part((-0.2 * an.ca, an.cy + 0.2 * an.cb, 0), (130, 130, 120))
    if part:
        stomach = an.stomach(part)
        mixed = hu + p["stomach_offset"] + 6 * an.waves("meal", 16)(part)
        level = an.cy + 0.3 * an.cb + p["stomach_gas"] * 30  # gas rises to the front; its lower surface is flat
        folds = np.float32(1.6) * an.waves("folds of the stomach", 13)(part)
        gas = np.maximum(stomach + 3.5, level - np.broadcast_to(part.y.astype(np.float32), part.shape))
        out += [
            Layer("stomach", stomach, hu + p["muscle_offset"], part.origin),
            Layer("stomach", stomach + 3 + folds, mixed.astype(np.float32), part.origin, steep_as=stomach),
            Layer("stomach gas", gas, -960.0, part.origin),
        ]

    centre = an.spleen_centre
    part = g.part((0.3 * centre[0], an.cy, -18), (90, 80, 60))
    if part:
        # The pancreas and the vein of the spleen end at its hilum.
        hilum = centre * [0.66, 0.55, 1] + [0, 0.4 * an.cy + 4, -8]
        line = an.vessel(
            [(26, an.spine_y + 52, -42), (4, an.spine_y + 62, -26), (-0.28 * an.ca, an.spine_y + 50, -16), hilum],
            "pancreas",
            3,
        )
        lobes = an.waves("pancreas", 15)(part) * np.float32(1.7)
        pancreas = np.maximum(
            f.tube(part, line, [13, 9, 9, 6]) + lobes, np.maximum(4 - an.stomach(part), part.shared["cavity"] + 6)
        )
        pancreas = np.maximum(pancreas, 3 - an.kidney(part, -1))
        vein = f.tube(part, line - [0, 7, 2], [5.5, 5, 4.5, 4])
        out += [
            Layer("pancreas", pancreas, hu + p["liver_offset"] * 0.5 - 6, part.origin),
            Layer("splenic vein", np.maximum(vein, 2 - an.kidney(part, -1)), blood, part.origin),
        ]

    if spleen is not None:
        tone = (hu + 1.5 * an.waves("spleen tone", 30)(spleen_part)).astype(np.float32)
        # A thin coat of fat keeps the spleen apart from what was painted before, as the neighbours only partly yield.
        out.append(
            Layer("fat", np.maximum(spleen - 1, spleen_part.shared["cavity"]), p["fat_hu"] + 12, spleen_part.origin)
        )
        out.append(Layer(SPLEEN, spleen, tone, spleen_part.origin))
    return out


def retroperitoneum(an: Anatomy, g: f.Grid) -> list[Layer]:
    p, out = an.p, []
    hu, s = p["spleen_hu"], p["kidney_scale"]
    blood, muscle = hu + p["blood_offset"], hu + p["muscle_offset"]
    for side in (1, -1):
        centre = an.kidney_centre(side)
        part = g.part(centre, (55, 55, 75))
        if part:
            kidney = an.kidney(part, side)
            inward = centre + np.array([-15 * side * s, 10 * s, 0])
            sinus = f.ellipsoid(part, inward, (17 * s, 12 * s, 30 * s), f.turn(1, 10 * side) @ f.turn(2, 28 * side))
            sinus = sinus + an.waves(f"sinus {side}", 15)(part) * np.float32(3)
            pelvis = f.ellipsoid(part, inward - [3 * side, 0, 0], (11 * s, 6 * s, 15 * s))
            out += [
                Layer("kidney", kidney, hu + p["kidney_offset"], part.origin),
                Layer("kidney sinus", np.maximum(sinus, kidney + 2), p["fat_hu"] + 25, part.origin),
                Layer("kidney pelvis", pelvis, min(hu, 60) * 0.3, part.origin),
            ]
    r, y = p["aorta_radius"], an.spine_y
    part = g.part((0, y + 20, 0), (75, 70, 1e6))
    if part is None:
        return out
    front = y + 20 * p["spine_scale"]
    aorta = f.tube(
        part,
        [(-14, front + r - 6, 500), (-9, front + r + 1, 40), (-5, front + r + 1, -110), (-4, front + r + 1, -150)],
        [r * 1.12, r, r * 0.85, r * 0.8],
    )
    forks = [
        f.tube(
            part,
            [(-4, front + r + 1, -148), (38 * d, front - 2, -230), (60 * d, front + 4, -300)],
            [r * 0.6, r * 0.55, r * 0.5],
        )
        for d in (1, -1)
    ]
    aorta = np.minimum(aorta, np.minimum(*forks))
    cava = f.tube(
        part,
        [(20, front + 22, 70), (21, front + 12, 10), (17, front + 9, -150), (30, front + 2, -300)],
        [11, 11, 10, 8],
    )
    psoas = np.min(
        [
            f.tube(part, [(22 * d, y - 2, 20), (34 * d, y - 2, -90), (52 * d, y + 14, -300)], [3, 17, 24])
            for d in (1, -1)
        ],
        axis=0,
    )
    crura = np.minimum(
        *(
            f.tube(
                part,
                [(10 * d - 4, front + 2 * r, 45), (15 * d - 3, front + 3, -20), (9 * d, front + 1, -80)],
                [5, 5.5, 2],
            )
            for d in (1, -1)
        )
    )
    out += [
        Layer("muscle", np.maximum(psoas, part.shared["ellipse"]), muscle, part.origin),
        Layer("muscle", crura, muscle, part.origin),
        Layer("vena cava", cava, hu + 0.7 * p["blood_offset"], part.origin),
        Layer("aorta", aorta, blood + 6, part.origin),
    ]
    return out


def bones(an: Anatomy, g: f.Grid) -> list[Layer]:
    p, s, out = an.p, an.p["spine_scale"], []
    cortex, marrow = p["bone_hu"], p["bone_hu"] * 0.2 + 50
    y = an.spine_y

    part = g.part((0, y - 22, 0), (65, 60, 1e6))
    if part:
        pitch = 1.18 * p["rib_spacing"]
        phase = part.Z / pitch + p["rib_phase"]
        dz = (phase - np.round(phase)) * pitch  # height above the middle of the nearest vertebra
        waist = 1 - 0.10 * np.cos(2 * np.pi * dz / pitch)
        body = np.sqrt((part.X / (22 * s)) ** 2 + ((part.Y - y) / (16.5 * s)) ** 2) / waist
        body = (body - 1) * 16
        disc = np.maximum(body, pitch / 2 - 4.2 - np.abs(dz))
        canal = np.sqrt((part.X / 11) ** 2 + ((part.Y - y + 25 * s) / 8.5) ** 2) * 9 - 9
        arch = np.maximum(canal - 5.5, part.Y - y + 14 * s)
        arch = np.maximum(arch, np.abs(dz + 3) - 0.36 * pitch)
        spine = np.maximum(
            np.maximum(np.abs(part.X) - 3.2, np.abs(dz + 8) - 9), np.maximum(y - 64 * s - part.Y, part.Y - y + 32 * s)
        )
        side = np.sqrt((part.Y - y + (22 + 0.12 * np.abs(part.X)) * s) ** 2 + (dz - 2) ** 2) - 5
        side = np.maximum(side, np.abs(part.X) - 40 * s)
        back = np.minimum(np.minimum(arch, spine), side)
        grain = 28 * an.waves("marrow", 7, 14)(part)
        out += [
            Layer("spine", f.rounded_union(back, body, 3), cortex, part.origin),
            Layer("spine", np.minimum(body + 2.2, back + 2.4), (marrow + grain).astype(np.float32), part.origin),
            Layer("disc", disc, 85.0, part.origin),
            Layer("spinal canal", canal, 28.0, part.origin),
        ]

    # Ribs run in the wall, falling from the spine to the front. One periodic function makes all of them.
    spacing = p["rib_spacing"]
    angle = np.abs(np.arctan2(g.X, an.cy - g.Y)) / np.float32(np.pi)  # 0 at the spine, 1 at the front
    drop = 2.6 * p["rib_drop"] * (angle - 1.1 * np.clip(angle - 0.62, 0, None))
    phase = (g.Z + drop) / spacing + p["rib_phase"]
    number = np.round(phase)  # 0 is about the eleventh rib
    dz = (phase - number) * spacing * 0.85
    reach = np.select([number <= -2, number == -1, number == 0, number == 1], [-1.0, 0.30, 0.5, 0.62], 0.72)
    depth = g.shared["ellipse"] - 6.5
    rib = np.sqrt((depth * 1.5) ** 2 + (dz * 0.85) ** 2) - 5.6
    bony = np.maximum(rib, (angle - reach) * 120)
    bony = np.maximum(bony, (0.06 - angle) * 150)
    bony = bony.astype(np.float32)
    gristle = np.maximum(rib - 0.5, np.maximum((reach - angle) * 120, np.where(number >= 1, (angle - 0.93) * 120, 50)))
    out += [
        Layer("rib cartilage", gristle.astype(np.float32), 105.0),
        Layer("rib", bony, cortex * 1.1),
        Layer("rib", bony + np.float32(2.1), marrow + 40, steep_as=bony),
    ]

    part = g.part((0, 0, -230), (1000, 1000, 80))
    if part:
        crest = -172 - 55 * (np.abs(part.Y - an.cy + 20) / an.cb) ** 2
        wing = np.maximum(np.abs(part.shared["ellipse"] - 2) - 6, part.Z - crest)
        wing = np.maximum(wing, np.maximum(part.Y - an.cy - 0.45 * an.cb, 34 - np.abs(part.X))).astype(np.float32)
        out += [
            Layer("hip bone", wing, cortex, part.origin),
            Layer("hip bone", wing + np.float32(2.2), marrow, part.origin, steep_as=wing),
        ]
    return out
